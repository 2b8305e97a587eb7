//! `exec`: its result, its callbacks, its limit, and what dropping it does.

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use agentvm_sdk::{
    ClientError, ExecOptions, ExitCause, Output, OutputFrom, OutputStream, Overflow, ProcessLimits,
    SpawnOptions,
    wire::{
        error::{Code, Rejection},
        process::{OutputMode, ProcessExited, StdinMode},
    },
};
use futures_util::FutureExt as _;
use tokio::{join, sync::mpsc};

use crate::{
    NONE,
    guest::pattern,
    scene::{caught_up, scene, scene_with},
    sidecar::Heard,
};

/// What callbacks were given.
#[derive(Clone, Default)]
struct Notes(Arc<Mutex<Vec<u8>>>);

impl Notes {
    fn taker(&self) -> impl FnMut(&[u8]) + Send + 'static {
        let notes = self.0.clone();
        move |bytes| notes.lock().unwrap().extend_from_slice(bytes)
    }

    fn take(&self) -> Vec<u8> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

/// Panics when it is called; a second call would end the test's process.
fn panics_once() -> impl FnMut(&[u8]) + Send + 'static {
    let mut called = false;
    move |_| {
        if std::mem::replace(&mut called, true) {
            std::process::abort();
        }
        panic!("on purpose");
    }
}

#[test]
fn exec_hands_the_line_to_a_shell_unaltered() {
    scene(async |vm, peer| {
        const LINE: &str = "  echo \"$HOME\" | tr a-z A-Z; exit 3 # ünïcödé\n";
        let (result, ()) = join!(vm.exec(LINE, ExecOptions::new()), async {
            let guest = peer.starts().await;
            let execute = &guest.execute;
            assert_eq!((&*execute.command, execute.arg0.as_deref()), ("/bin/sh", Some("sh")));
            assert_eq!(execute.args, ["-c", LINE]);
            assert_eq!(execute.process.0, 1 << 31);
            assert_eq!((execute.stdin, execute.stdout), (StdinMode::Null, OutputMode::Pipe));
            peer.exits(&guest, 3).await;
        });
        assert_eq!(result.unwrap().exit_code, 3);
        assert!(vm.list_processes().is_empty(), "exec is not in the registry");
    });
}

#[test]
fn an_exec_killed_by_a_signal_returns_its_code_and_what_it_wrote() {
    scene(async |vm, peer| {
        let (result, ()) = join!(vm.exec_bytes("yes", ExecOptions::new()), async {
            let guest = peer.starts().await;
            peer.writes(guest.stdout(), b"y\n\xff").await;
            let exited = ProcessExited {
                exit_code: 143,
                signal: Some("SIGTERM".to_owned()),
                cause: ExitCause::Signaled,
                ..guest.exit(3, 0)
            };
            peer.exited(exited).await;
        });
        let result = result.unwrap();
        assert_eq!((result.exit_code, result.signal.as_deref()), (143, Some("SIGTERM")));
        assert_eq!(&*result.stdout, b"y\n\xff");
    });
}

#[test]
fn callbacks_see_all_of_each_stream_in_order_whether_or_not_it_is_captured() {
    scene(async |vm, peer| {
        const TOTAL: u64 = 1 << 20;
        let (out, err) = (Notes::default(), Notes::default());
        let options = ExecOptions::new().capture_stdio(false).on_stdout(out.taker()).on_stderr(err.taker());
        let (result, ()) = join!(vm.exec("flood", options), async {
            let guest = peer.starts().await;
            peer.floods(guest.stdout(), TOTAL).await;
            peer.writes(guest.stderr(), b"oops").await;
            peer.exits(&guest, 0).await;
        });
        assert_eq!(result.unwrap().stdout, "");
        assert!(out.take() == pattern(0, TOTAL));
        assert_eq!(err.take(), b"oops");
    });
}

#[test]
fn d25_a_callback_that_panics_is_removed_and_disturbs_nobody() {
    scene(async |vm, peer| {
        let err = Notes::default();
        let options = ExecOptions::new().on_stdout(panics_once()).on_stderr(err.taker());
        let (result, ()) = join!(vm.exec("talk", options), async {
            let guest = peer.starts().await;
            for word in ["one ", "two"] {
                peer.writes(guest.stdout(), word.as_bytes()).await;
                peer.writes(guest.stderr(), word.as_bytes()).await;
            }
            peer.exits(&guest, 0).await;
        });
        assert_eq!(result.unwrap().stdout, "one two");
        assert_eq!(err.take(), b"one two");
    });
}

#[test]
fn d25_a_spawn_callback_or_exit_handler_that_panics_disturbs_nobody() {
    scene(async |vm, peer| {
        let (out, err) = (Notes::default(), Notes::default());
        let options = SpawnOptions::new().on_stdout(panics_once()).on_stderr(err.taker());
        let panicking = vm.spawn("a", NONE, options).unwrap();
        let fine = vm.spawn("b", NONE, SpawnOptions::new().on_stdout(out.taker())).unwrap();
        vm.on_process_exit(panicking.pid(), |_| panic!("on purpose")).unwrap().detach();

        for guest in [peer.starts().await, peer.starts().await] {
            for word in ["one ", "two"] {
                peer.writes(guest.stdout(), word.as_bytes()).await;
                peer.writes(guest.stderr(), word.as_bytes()).await;
            }
            peer.exits(&guest, 0).await;
        }
        assert_eq!(panicking.wait().await.unwrap().code, 0);
        assert_eq!(fine.wait().await.unwrap().code, 0);
        assert_eq!((out.take(), err.take()), (b"one two".to_vec(), b"one two".to_vec()));
    });
}

#[test]
fn d12_a_kill_that_nobody_confirms_is_an_error_with_the_output_so_far() {
    let mut limits = ProcessLimits::default();
    limits.kill_confirmation = Duration::from_millis(20);
    scene_with(limits, async |vm, peer| {
        let options = ExecOptions::new().timeout(Duration::from_millis(30));
        let begun = Instant::now();
        let (result, guest) = join!(vm.exec("stuck", options), async {
            let guest = peer.starts().await;
            assert_eq!(guest.execute.timeout_ms, Some(30));
            peer.writes(guest.stdout(), b"so far").await;
            peer.is_told_to_kill(&guest).await;
            guest
        });
        let error = result.unwrap_err();
        let ClientError::TerminationUnconfirmed { waited, stdout, stderr } = &error else {
            panic!("{error:?}")
        };
        assert_eq!((*waited, &**stdout, &**stderr), (limits.kill_confirmation, &b"so far"[..], &b""[..]));
        assert_eq!(error.code(), Code::DEADLINE_EXCEEDED);
        assert!(begun.elapsed() >= Duration::from_millis(50));
        // What comes too late changes nothing.
        peer.exits(&guest, 0).await;
        caught_up(&vm, peer).await;
    });
}

#[test]
fn c80_a_call_that_ends_in_time_is_never_given_up_however_long_its_output_is_not_taken() {
    let mut limits = ProcessLimits::default();
    limits.kill_confirmation = Duration::from_millis(1);
    scene_with(limits, async |vm, peer| {
        let options = SpawnOptions::new().timeout(Duration::from_millis(200));
        let process = vm.spawn("quick", NONE, options).unwrap();
        let mut reader = process.output_from(OutputStream::Stdout, OutputFrom::Start, Overflow::Wait);
        let guest = peer.starts().await;
        peer.writes(guest.stdout(), b"taken late").await;
        peer.exits(&guest, 7).await;
        caught_up(&vm, peer).await;
        // A second call's timeout, begun later, runs out and is given up.
        let options = ExecOptions::new().timeout(Duration::from_millis(210));
        let (second, ()) = join!(vm.exec("stuck", options), async {
            let guest = peer.starts().await;
            peer.is_told_to_kill(&guest).await;
        });
        assert!(matches!(second, Err(ClientError::TerminationUnconfirmed { .. })), "{second:?}");
        assert!(process.wait().now_or_never().is_none(), "it waits for its subscriber");
        assert_eq!(reader.next().await, Some(Ok(Output::Data("taken late".into()))));
        assert_eq!(process.wait().await.unwrap().code, 7);
    });
}

#[test]
fn a_start_that_came_too_late_is_told_as_that() {
    scene(async |vm, peer| {
        let options = || ExecOptions::new().timeout(Duration::from_secs(60));
        let (result, ()) = join!(vm.exec("late", options()), async {
            let guest = peer.hears_execute().await;
            let mut rejection = Rejection::new(Code::DEADLINE_EXCEEDED, "not started before its timeout");
            rejection.details.step = Some("deadline".to_owned());
            peer.rejects(guest.request, rejection).await;
        });
        let error = result.unwrap_err();
        assert!(matches!(error, ClientError::StartTimedOut { .. }), "{error:?}");
        let (result, ()) = join!(vm.exec("killed", options()), async {
            let guest = peer.starts().await;
            peer.writes(guest.stdout(), b"so far").await;
            let exited = ProcessExited {
                exit_code: 137,
                signal: Some("SIGKILL".to_owned()),
                cause: ExitCause::Timeout,
                ..guest.exit(6, 0)
            };
            peer.exited(exited).await;
        });
        let result = result.unwrap();
        assert_eq!((result.exit_code, result.timed_out, result.stdout.as_str()), (137, true, "so far"));
        let json = serde_json::to_value(&result).unwrap();
        assert_eq!((&json["exitCode"], &json["timedOut"]), (&137.into(), &true.into()));
    });
}

#[test]
fn beyond_the_capture_limit_the_tree_is_killed_and_what_was_captured_is_kept() {
    scene(async |vm, peer| {
        let (tell, mut told) = mpsc::unbounded_channel();
        let options =
            ExecOptions::new().max_output_bytes(10).on_stderr(move |bytes| tell.send(bytes.len()).unwrap());
        let (result, ()) = join!(vm.exec("flood", options), async {
            let guest = peer.starts().await;
            peer.writes(guest.stderr(), b"1234").await;
            assert_eq!(told.recv().await, Some(4));
            peer.writes(guest.stdout(), b"abcdefgh").await;
            peer.is_told_to_kill(&guest).await;
        });
        let error = result.unwrap_err();
        assert_eq!(error.to_string(), "exec stdout capture is 12 bytes, limit is 10");
        assert_eq!(error.code(), Code::TOO_LARGE);
        let ClientError::CaptureLimit { stdout, stderr, .. } = error else { panic!("{error}") };
        assert_eq!((&*stdout, &*stderr), (&b"abcdef"[..], &b"1234"[..]));
    });
}

#[test]
fn output_up_to_the_limit_exactly_is_no_fault() {
    scene(async |vm, peer| {
        let (result, ()) = join!(vm.exec("flood", ExecOptions::new().max_output_bytes(10)), async {
            let guest = peer.starts().await;
            peer.writes(guest.stdout(), b"0123456789").await;
            peer.exits(&guest, 0).await;
        });
        assert_eq!(result.unwrap().stdout, "0123456789");
    });
}

#[test]
fn d14_dropping_an_exec_kills_its_tree_and_gives_up_its_streams() {
    scene(async |vm, peer| {
        let mut exec = Box::pin(vm.exec("sleep 1000", ExecOptions::new().stdin(vec![0; 1 << 20])));
        assert!((&mut exec).now_or_never().is_none());
        let guest = peer.starts().await;
        caught_up(&vm, peer).await;
        drop(exec);

        let (mut killed, mut given_up) = (false, Vec::new());
        while !killed || given_up.len() < 3 {
            match peer.hears().await {
                Heard::Request { id, .. } => {
                    peer.signaled(id).await;
                    killed = true;
                }
                Heard::Stop(stream) | Heard::Reset(stream) => given_up.push(stream),
                _ => {}
            }
        }
        given_up.sort();
        assert_eq!(given_up, [guest.stdin(), guest.stdout(), guest.stderr()]);
        // Its late news concern nobody.
        peer.writes(guest.stdout(), b"late").await;
        peer.exits(&guest, 137).await;
        caught_up(&vm, peer).await;
    });
}

#[test]
fn d14_the_kill_of_an_exec_dropped_before_its_start_follows_the_start() {
    scene(async |vm, peer| {
        assert!(vm.exec("sleep 1000", ExecOptions::new()).now_or_never().is_none());
        let guest = peer.hears_execute().await;
        peer.is_told_to_kill(&guest).await;
        peer.started(&guest).await;
    });
}

#[test]
fn d14_an_exec_that_has_returned_kills_nobody() {
    scene(async |vm, peer| {
        let (result, ()) = join!(vm.exec("daemon &", ExecOptions::new()), async {
            let guest = peer.starts().await;
            peer.exits(&guest, 0).await;
        });
        result.unwrap();
        drop(vm);
        peer.hears_dispose().await;
    });
}

#[test]
fn d5_an_exec_whose_output_broke_is_no_success() {
    scene(async |vm, peer| {
        let (result, ()) = join!(vm.exec("cat file", ExecOptions::new()), async {
            let guest = peer.starts().await;
            peer.writes(guest.stdout(), b"half").await;
            peer.resets(guest.stdout()).await;
            peer.exited(guest.exit(100, 0)).await;
        });
        assert!(matches!(result.unwrap_err(), ClientError::OutputLost { stream: "stdout" }));
    });
}

#[test]
fn many_execs_at_once_each_get_their_own_output() {
    const MANY: usize = 200;
    scene(async |vm, peer| {
        let lines = (0..MANY).map(|index| format!("echo {index}"));
        let execs = lines.map(|line| {
            let vm = &vm;
            async move { vm.exec(&line, ExecOptions::new()).await.unwrap().stdout }
        });
        let (outputs, ()) = join!(futures_util::future::join_all(execs), async {
            let mut guests = Vec::new();
            for _ in 0..MANY {
                guests.push(peer.starts().await);
            }
            for guest in guests.iter().rev() {
                let line = guest.execute.args[1].clone();
                peer.writes(guest.stdout(), line.as_bytes()).await;
                peer.exits(guest, 0).await;
            }
        });
        for (index, output) in outputs.into_iter().enumerate() {
            assert_eq!(output, format!("echo {index}"));
        }
    });
}
