//! The end of a process: published once, kept, after its own output, never before, and never invented.

use std::sync::{Arc, Condvar, Mutex, mpsc};

use agentvm_sdk::{
    AgentOs, ClientError, ExecOptions, ExitCause, Output, OutputFrom, OutputStream, Overflow, Process,
    SpawnOptions, wire::process::ProcessExited,
};
use futures_util::FutureExt as _;
use tokio::{join, sync::oneshot};

use crate::{
    NONE,
    scene::{caught_up, scene, started},
    sidecar::Peer,
};

/// Whether the process's outcome is still open.
fn is_open(process: &Process) -> bool {
    process.wait().now_or_never().is_none()
}

#[test]
fn d1_an_exit_that_nobody_awaits_is_kept_for_whoever_waits_later() {
    scene(async |vm, peer| {
        let pid = vm.spawn("true", NONE, SpawnOptions::new()).unwrap().pid();
        let guest = peer.starts().await;
        peer.exits(&guest, 3).await;
        caught_up(&vm, peer).await;

        assert!(!vm.get_process(pid).unwrap().running);
        assert_eq!(vm.get_process(pid).unwrap().exit_code, Some(3));
        assert_eq!(vm.wait_process(pid).await.unwrap(), 3);
        assert_eq!(vm.wait_process(pid).await.unwrap(), 3);
    });
}

#[test]
fn death_by_a_signal_is_128_plus_its_number_and_names_it() {
    scene(async |vm, peer| {
        let (process, guest) = started(&vm, peer).await;
        let killed = ProcessExited {
            exit_code: 137,
            signal: Some("SIGKILL".to_owned()),
            cause: ExitCause::Signaled,
            ..guest.exit(0, 0)
        };
        peer.exited(killed).await;

        let status = process.wait().await.unwrap();
        assert_eq!((status.code, status.signal.as_deref()), (137, Some("SIGKILL")));
        assert_eq!(status.cause, ExitCause::Signaled);
        assert!(!status.success());
    });
}

#[test]
fn only_the_first_exit_counts() {
    scene(async |vm, peer| {
        let (process, guest) = started(&vm, peer).await;
        peer.exits(&guest, 1).await;
        peer.exits(&guest, 0).await;
        caught_up(&vm, peer).await;
        assert_eq!(process.wait().await.unwrap().code, 1);
    });
}

#[derive(Debug, Clone, Copy)]
enum Fin {
    None,
    WithTheLastByte,
    Afterwards,
}

/// The exit comes first, the output behind it in two frames cut at `cut`.
async fn exit_overtakes_output(vm: &AgentOs, peer: &mut Peer, cut: usize, fin: Fin) {
    const OWN: &[u8] = b"hello";
    let (process, guest) = started(vm, peer).await;
    let (early, late) = OWN.split_at(cut);
    peer.exited(guest.exit(OWN.len() as u64, 0)).await;
    caught_up(vm, peer).await;
    assert!(is_open(&process), "before any output");

    peer.writes(guest.stdout(), early).await;
    caught_up(vm, peer).await;
    assert_eq!(is_open(&process), !late.is_empty(), "after {cut} bytes, {fin:?}");

    peer.next_frame(guest.stdout(), late, matches!(fin, Fin::WithTheLastByte)).await;
    if let Fin::Afterwards = fin {
        peer.finishes(guest.stdout()).await;
    }
    assert_eq!(process.wait().await.unwrap().code, 0);
    let all = process.stdout().until_exit().collect().now_or_never().expect("all of it is here");
    assert_eq!(all.unwrap(), OWN);
}

#[test]
fn d11_an_exit_that_overtakes_output_is_published_after_its_last_byte_wherever_frames_are_cut() {
    scene(async |vm, peer| {
        for cut in 0..=5 {
            for fin in [Fin::None, Fin::WithTheLastByte, Fin::Afterwards] {
                exit_overtakes_output(&vm, peer, cut, fin).await;
            }
        }
    });
}

#[test]
fn d11_both_outputs_count() {
    scene(async |vm, peer| {
        let (process, guest) = started(&vm, peer).await;
        peer.exited(guest.exit(3, 4)).await;
        peer.writes(guest.stdout(), b"out").await;
        caught_up(&vm, peer).await;
        assert!(is_open(&process));

        peer.writes(guest.stderr(), b"oops").await;
        assert_eq!(process.wait().await.unwrap().code, 0);
    });
}

#[test]
fn d11_an_exec_returns_with_output_that_comes_after_the_exit() {
    scene(async |vm, peer| {
        let (result, ()) = join!(vm.exec("echo hello; echo oops >&2", ExecOptions::new()), async {
            let guest = peer.starts().await;
            peer.exited(guest.exit(6, 5)).await;
            for byte in b"hello\n" {
                peer.writes(guest.stdout(), &[*byte]).await;
            }
            peer.writes(guest.stderr(), b"oops\n").await;
        });
        let result = result.unwrap();
        assert_eq!((&*result.stdout, &*result.stderr, result.exit_code), ("hello\n", "oops\n", 0));
    });
}

#[test]
fn d11_survivors_that_go_on_writing_delay_nothing() {
    scene(async |vm, peer| {
        let (process, guest) = started(&vm, peer).await;
        peer.exited(ProcessExited { output_open: true, ..guest.exit(3, 0) }).await;
        peer.writes(guest.stdout(), b"own and of a survivor").await;
        assert_eq!(process.wait().await.unwrap().code, 0);
    });
}

#[test]
fn a_stream_that_ends_short_of_what_the_exit_announced_holds_nobody_up() {
    scene(async |vm, peer| {
        let (process, guest) = started(&vm, peer).await;
        peer.exited(guest.exit(10, 0)).await;
        peer.writes(guest.stdout(), b"half").await;
        peer.finishes(guest.stdout()).await;
        assert_eq!(process.wait().await.unwrap().code, 0);
    });
}

#[test]
fn until_exit_ends_at_the_last_byte_of_the_process_itself() {
    scene(async |vm, peer| {
        let (process, guest) = started(&vm, peer).await;
        let mut early = process.stdout().until_exit();
        let late = process.stdout().until_exit();
        peer.exited(ProcessExited { output_open: true, ..guest.exit(3, 0) }).await;
        peer.writes(guest.stdout(), b"own survivor").await;

        assert_eq!(early.next().await.unwrap().unwrap(), Output::Data("own".into()));
        assert_eq!(early.next().await, None);
        process.wait().await.unwrap();
        assert_eq!(late.collect().await.unwrap(), b"own");
        assert_eq!(process.stdout().until_exit().collect().await.unwrap(), b"own");
    });
}

#[test]
fn until_exit_wakes_a_reader_that_had_read_everything_before_the_exit() {
    scene(async |vm, peer| {
        let (process, guest) = started(&vm, peer).await;
        let mut stdout = process.stdout().until_exit();
        peer.writes(guest.stdout(), b"own").await;
        assert_eq!(stdout.next().await.unwrap().unwrap(), Output::Data("own".into()));
        let (end, ()) =
            join!(stdout.next(), peer.exited(ProcessExited { output_open: true, ..guest.exit(3, 0) }));
        assert_eq!(end, None);
    });
}

#[test]
fn a_waiting_subscriber_holds_the_exit_up_until_it_has_read() {
    scene(async |vm, peer| {
        let (process, guest) = started(&vm, peer).await;
        let mut waiting = process.output_from(OutputStream::Stdout, OutputFrom::Start, Overflow::Wait);
        let _dropping = process.stdout();
        peer.writes(guest.stdout(), b"bytes").await;
        peer.exits(&guest, 0).await;
        caught_up(&vm, peer).await;
        assert!(is_open(&process));

        assert_eq!(waiting.next().await.unwrap().unwrap(), Output::Data("bytes".into()));
        assert!(!is_open(&process));
    });
}

#[test]
fn a_waiting_subscriber_that_is_dropped_lets_the_exit_go() {
    scene(async |vm, peer| {
        let (process, guest) = started(&vm, peer).await;
        let waiting = process.output_from(OutputStream::Stdout, OutputFrom::Start, Overflow::Wait);
        peer.writes(guest.stdout(), b"bytes").await;
        peer.exits(&guest, 0).await;
        caught_up(&vm, peer).await;
        assert!(is_open(&process));

        drop(waiting);
        assert!(!is_open(&process));
    });
}

#[test]
fn the_exit_is_published_after_the_callback_has_returned_from_the_last_byte() {
    scene(async |vm, peer| {
        let (called, calls) = mpsc::channel();
        let (release, released) = mpsc::channel::<()>();
        let options = SpawnOptions::new().on_stdout(move |bytes| {
            called.send(bytes.to_vec()).unwrap();
            released.recv().unwrap();
        });
        let process = vm.spawn("worker", NONE, options).unwrap();
        let guest = peer.starts().await;
        peer.writes(guest.stdout(), b"last").await;
        peer.exits(&guest, 0).await;
        caught_up(&vm, peer).await;

        assert_eq!(calls.recv().unwrap(), b"last");
        assert!(is_open(&process));
        release.send(()).unwrap();
        process.wait().await.unwrap();
    });
}

#[test]
fn an_exec_awaits_the_drain_of_what_its_descendants_still_write() {
    scene(async |vm, peer| {
        let (result, ()) = join!(vm.exec("(echo tail) & echo own", ExecOptions::new()), async {
            let guest = peer.starts().await;
            assert!(guest.execute.drain.is_some());
            peer.writes(guest.stdout(), b"own\n").await;
            peer.exited(ProcessExited { output_open: true, ..guest.exit(4, 0) }).await;
            peer.writes(guest.stdout(), b"tail\n").await;
            peer.drained(&guest).await;
        });
        assert_eq!(result.unwrap().stdout, "own\ntail\n");
    });
}

#[test]
fn an_exit_handler_is_called_once_with_the_status() {
    scene(async |vm, peer| {
        let (process, guest) = started(&vm, peer).await;
        let (tell, told) = oneshot::channel();
        let handler = vm.on_process_exit(process.pid(), move |outcome| tell.send(outcome).unwrap()).unwrap();
        peer.exits(&guest, 4).await;
        assert_eq!(told.await.unwrap().unwrap().code, 4);
        drop(handler);

        let (tell, told) = oneshot::channel();
        vm.on_process_exit(process.pid(), move |outcome| tell.send(outcome).unwrap()).unwrap().detach();
        assert_eq!(told.await.unwrap().unwrap().code, 4, "one that comes late is called too");
    });
}

#[test]
fn a_subscription_that_is_dropped_before_the_exit_does_not_fire_and_a_detached_one_does() {
    scene(async |vm, peer| {
        let (process, guest) = started(&vm, peer).await;
        let (dropped, never) = oneshot::channel::<Result<_, ClientError>>();
        drop(vm.on_process_exit(process.pid(), move |outcome| dropped.send(outcome).unwrap()).unwrap());
        assert!(never.await.is_err(), "the handler is gone with its subscription");

        let (tell, told) = oneshot::channel();
        vm.on_process_exit(process.pid(), move |outcome| tell.send(outcome).unwrap()).unwrap().detach();
        peer.exits(&guest, 0).await;
        assert_eq!(told.await.unwrap().unwrap().code, 0);
    });
}

#[test]
fn d25_callbacks_that_block_in_many_processes_delay_no_other() {
    scene(async |vm, peer| {
        const BLOCKED: usize = 600;
        let (blocked, blocks) = mpsc::channel();
        let gate = Arc::new((Mutex::new(false), Condvar::new()));
        for _ in 0..BLOCKED {
            let (blocked, gate) = (blocked.clone(), gate.clone());
            let options = SpawnOptions::new().on_stdout(move |_| {
                blocked.send(()).unwrap();
                let (open, opened) = &*gate;
                drop(opened.wait_while(open.lock().unwrap(), |open| !*open).unwrap());
            });
            vm.spawn("worker", NONE, options).unwrap();
            let guest = peer.starts().await;
            peer.writes(guest.stdout(), b"x").await;
        }
        let (process, guest) = started(&vm, peer).await;
        let (told, tells) = oneshot::channel();
        vm.on_process_exit(process.pid(), move |_| told.send(()).unwrap()).unwrap().detach();
        peer.exits(&guest, 0).await;
        tells.await.expect("the handler was called");
        assert_eq!(blocks.iter().take(BLOCKED).count(), BLOCKED);
        *gate.0.lock().unwrap() = true;
        gate.1.notify_all();
    });
}
