//! Starting a process, and what is done to it before it has started.

use std::thread;

use agentvm_sdk::{
    ClientError, ExecOptions, Signal, SignalTarget, SpawnOptions,
    wire::{
        error::Code,
        message::Request,
        process::{OutputMode, StdinMode},
        session::Limits,
    },
};
use futures_util::FutureExt as _;
use tokio::{join, sync::oneshot};

use crate::{
    NONE,
    guest::STARTED_AT_MS,
    scene::{caught_up, scene, started},
    sidecar::Heard,
};

#[test]
fn d3_d4_what_is_done_right_after_spawn_follows_the_start_in_call_order() {
    scene(async |vm, peer| {
        let process = vm.spawn("cat", NONE, SpawnOptions::new()).unwrap();
        for word in ["one ", "two ", "three"] {
            process.write_stdin(word).unwrap();
        }
        process.close_stdin();
        process.kill();

        let guest = peer.hears_execute().await;
        let (mut input, mut ended, mut kills) = (Vec::new(), false, 0);
        while !ended || kills == 0 {
            match peer.hears().await {
                Heard::Data { stream, offset, bytes, fin } => {
                    assert_eq!((stream, offset), (guest.stdin(), input.len() as u64));
                    assert!(!ended, "the end comes last");
                    input.extend(bytes);
                    ended = fin;
                }
                Heard::Request { request: Request::SignalProcess(kill), .. } => {
                    assert_eq!((kill.signal, kill.target), (Signal::KILL, SignalTarget::Tree));
                    kills += 1;
                }
                other => panic!("nobody asked for {other:?}"),
            }
        }
        assert_eq!(String::from_utf8(input).unwrap(), "one two three");
    });
}

#[test]
fn spawn_asks_for_three_pipes_and_passes_every_argument_verbatim() {
    scene(async |vm, peer| {
        let args = ["", "two words", "$HOME", "line\nbreak", "ünïcödé"];
        let options = SpawnOptions::new().env("KEY", "value=with=equals").cwd("/tmp");
        vm.spawn("/bin/prog ram", args, options).unwrap();

        let execute = peer.hears_execute().await.execute;
        assert_eq!(execute.process.0, 1_000_000);
        assert_eq!((&*execute.command, &*execute.args), ("/bin/prog ram", &args.map(String::from)[..]));
        assert_eq!(execute.env.into_iter().collect::<Vec<_>>(), [("KEY".into(), "value=with=equals".into())]);
        assert_eq!(execute.cwd.as_deref(), Some("/tmp"));
        assert_eq!(execute.stdin, StdinMode::Pipe);
        assert_eq!((execute.stdout, execute.stderr), (OutputMode::Pipe, OutputMode::Pipe));
        assert_eq!(execute.drain, None, "only exec awaits the drain");
    });
}

#[test]
fn d8_a_start_that_is_rejected_is_a_spawn_failure_and_not_an_exit() {
    scene(async |vm, peer| {
        let process = vm.spawn("nope", NONE, SpawnOptions::new()).unwrap();
        let (tell, told) = oneshot::channel();
        vm.on_process_exit(process.pid(), move |outcome| tell.send(outcome).unwrap()).unwrap().detach();
        let guest = peer.hears_execute().await;
        peer.finds_nothing_to_start(&guest).await;

        let is_enoent = |error: &ClientError| matches!(error, ClientError::SpawnFailed { code, step, .. } if code.as_str() == "ENOENT" && step == "exec");
        assert!(is_enoent(&process.wait().await.unwrap_err()));
        assert!(is_enoent(&vm.wait_process(process.pid()).await.unwrap_err()));
        assert!(is_enoent(&told.await.unwrap().unwrap_err()));

        let message = "nope: No such file or directory";
        let info = vm.get_process(process.pid()).unwrap();
        assert_eq!((info.running, info.exit_code), (false, None));
        assert_eq!(info.failure.as_deref(), Some(message));
        assert_eq!(process.stderr().collect().await.unwrap(), format!("{message}\n").as_bytes());
        assert_eq!(process.stdout().collect().await.unwrap(), b"");
        assert!(matches!(process.write_stdin("more"), Err(ClientError::StdinClosed)));
    });
}

#[test]
fn d8_an_exec_of_a_missing_program_fails_with_its_code() {
    scene(async |vm, peer| {
        let (result, ()) = join!(vm.exec_argv("nope", NONE, ExecOptions::new()), async {
            let guest = peer.hears_execute().await;
            peer.finds_nothing_to_start(&guest).await;
        });
        let error = result.unwrap_err();
        assert_eq!(error.code(), Code::from("ENOENT"));
        assert_eq!(error.to_string(), "nope: No such file or directory");
    });
}

#[test]
fn what_could_never_start_is_refused_without_a_word_to_the_sidecar() {
    scene(async |vm, peer| {
        let refused = |command: &str, args: &[&str], options: SpawnOptions| {
            let error = vm.spawn(command, args.iter().copied(), options).unwrap_err();
            let ClientError::Rejected(rejection) = error else { panic!("expected a rejection: {error}") };
            (rejection.code.as_str().to_owned(), rejection.details.field.unwrap_or_default())
        };
        let none = SpawnOptions::new;
        let invalid = |field: &str| ("invalid_argument".to_owned(), field.to_owned());
        let too_big = |field: &str| ("E2BIG".to_owned(), field.to_owned());

        assert_eq!(refused("", &[], none()), invalid("command"));
        assert_eq!(refused("a\0b", &[], none()), invalid("command"));
        assert_eq!(refused("a", &["b\0"], none()), invalid("args"));
        assert_eq!(refused("a", &[], none().env("", "x")), invalid("env."));
        assert_eq!(refused("a", &[], none().env("K=", "x")), invalid("env.K="));
        assert_eq!(refused("a", &[], none().env("K", "x\0")), invalid("env.K"));
        assert_eq!(refused("a", &[], none().cwd("relative")), invalid("cwd"));
        assert_eq!(refused("a", &[&"x".repeat(131_072)], none()), too_big("args"));
        assert_eq!(refused("a", &[&*"x".repeat(131_071); 20], none()), too_big("args"));
        assert_eq!(refused("a", &[], none().env("K", "x".repeat(131_072))), too_big("env"));

        let exec = async |command: &str| vm.exec(command, ExecOptions::new()).await.unwrap_err().code();
        assert_eq!(exec("").await, Code::INVALID_ARGUMENT);
        assert_eq!(exec("a\0b").await, Code::INVALID_ARGUMENT);
        assert_eq!(exec(&"x".repeat(131_072)).await, Code::E2BIG);

        assert!(vm.list_processes().is_empty());
        drop(vm);
        peer.hears_dispose().await;
    });
}

#[test]
fn d25_the_synchronous_methods_work_on_a_thread_without_any_runtime() {
    scene(async |vm, peer| {
        let played = thread::spawn(move || {
            let process = vm.spawn("cat", NONE, SpawnOptions::new().on_stdout(|_| {})).unwrap();
            let pid = process.pid();
            vm.write_process_stdin(pid, "text").unwrap();
            vm.close_process_stdin(pid).unwrap();
            vm.on_process_exit(pid, |_| {}).unwrap().detach();
            drop(vm.on_process_stdout(pid).unwrap());
            assert_eq!(vm.list_processes().len(), 1);
            vm.stop_process(pid).unwrap();
            vm.kill_process(pid).unwrap();
        });
        played.join().unwrap();

        let guest = peer.hears_execute().await;
        assert_eq!(guest.execute.command, "cat");
        let mut disposed = false;
        while !disposed {
            disposed = matches!(peer.hears().await, Heard::Request { request: Request::DisposeVm(_), .. });
        }
    });
}

#[test]
fn d21_a_process_started_when_the_sidecar_says_and_not_when_somebody_looked() {
    scene(async |vm, peer| {
        let (process, _) = started(&vm, peer).await;
        caught_up(&vm, peer).await;
        assert_eq!(vm.get_process(process.pid()).unwrap().started_at_ms, STARTED_AT_MS);
    });
}

#[test]
fn stop_reaches_the_group_and_kill_the_whole_tree() {
    scene(async |vm, peer| {
        let (process, guest) = started(&vm, peer).await;
        process.stop();
        let stop = peer.hears_signal(&guest, Signal::TERM, SignalTarget::Group).await;
        process.kill();
        let kill = peer.hears_signal(&guest, Signal::KILL, SignalTarget::Tree).await;
        peer.signaled(stop).await;
        peer.signaled(kill).await;
    });
}

#[test]
fn a_signal_that_waits_for_its_answer_is_not_sent_again() {
    scene(async |vm, peer| {
        let (process, guest) = started(&vm, peer).await;
        for _ in 0..1000 {
            process.stop();
        }
        let stop = peer.hears_signal(&guest, Signal::TERM, SignalTarget::Group).await;
        caught_up(&vm, peer).await;
        peer.heard_nothing_else();
        peer.signaled(stop).await;
        caught_up(&vm, peer).await;

        process.stop();
        peer.hears_signal(&guest, Signal::TERM, SignalTarget::Group).await;
    });
}

#[test]
fn a_kill_and_a_farewell_are_not_lost_where_too_many_requests_wait_for_their_answer() {
    scene(async |vm, peer| {
        let (process, guest) = started(&vm, peer).await;
        let connection = vm.sidecar().clone();
        let mut waiting = Vec::new();
        for _ in 0..Limits::default().max_requests {
            let mut call = Box::pin(vm.all_processes());
            assert!((&mut call).now_or_never().is_none());
            waiting.push(call);
        }
        assert_eq!(vm.all_processes().await.unwrap_err().code(), Code::RESOURCE_EXHAUSTED);
        process.kill();
        drop(waiting);
        drop(vm);

        for _ in 0..Limits::default().max_requests {
            peer.shows(Vec::new()).await;
        }
        peer.is_told_to_kill(&guest).await;
        peer.disposes().await;
        drop(connection);
    });
}

#[test]
fn c41_a_process_that_has_ended_is_signalled_no_more_whoever_has_its_pid_now() {
    scene(async |vm, peer| {
        let (process, guest) = started(&vm, peer).await;
        peer.exits(&guest, 0).await;
        process.wait().await.unwrap();
        process.stop();
        process.kill();
        assert!(matches!(peer.hears().await, Heard::Reset(stream) if stream == guest.stdin()));
        drop(vm);
        peer.hears_dispose().await;
    });
}
