//! Standard input: one ordered queue per process, bounded, within the peer's credit.

use agentvm_sdk::{
    AgentOs, ClientError, ExecOptions, OutputFrom, OutputStream, Overflow, Process, ProcessLimits,
    SpawnOptions,
};
use futures_util::FutureExt as _;
use tokio::{io::AsyncWriteExt as _, join};

use crate::{
    NONE,
    guest::{Guest, pattern},
    scene::{caught_up, scene, scene_with, started},
    sidecar::{Heard, Peer},
};

const WINDOW: u64 = 256 << 10;

/// Reads standard input to its end, granting a window whenever one is used up, never more.
async fn reads_to_the_end(peer: &mut Peer, guest: &Guest) -> Vec<u8> {
    let (mut input, mut limit) = (Vec::new(), WINDOW);
    loop {
        let (offset, bytes, fin) = peer.hears_stdin(guest).await;
        assert_eq!(offset, input.len() as u64, "no hole, nothing twice");
        input.extend(bytes);
        let received = input.len() as u64;
        assert!(received <= limit, "sent {received} bytes, credit is {limit}");
        if fin {
            return input;
        }
        if received == limit {
            limit += WINDOW;
            peer.grants(guest.stdin(), received, limit).await;
        }
    }
}

#[test]
fn d16_a_write_larger_than_any_frame_arrives_whole_and_within_credit() {
    scene(async |vm, peer| {
        let (process, guest) = started(&vm, peer).await;
        let input = pattern(0, 4 << 20);
        process.write_stdin(input.clone()).unwrap();
        process.close_stdin();
        assert_eq!(reads_to_the_end(peer, &guest).await, input);
    });
}

#[test]
fn d16_an_exec_is_given_exactly_its_input_and_then_the_end() {
    scene(async |vm, peer| {
        let input = pattern(0, 1 << 20);
        let options = ExecOptions::new().stdin(input.clone());
        let (result, heard) = join!(vm.exec("wc -c", options), async {
            let guest = peer.starts().await;
            let heard = reads_to_the_end(peer, &guest).await;
            peer.exits(&guest, 0).await;
            heard
        });
        assert_eq!((result.unwrap().exit_code, heard), (0, input));
    });
}

#[test]
fn an_exec_without_input_has_no_standard_input_at_all() {
    scene(async |vm, peer| {
        let (result, ()) = join!(vm.exec("cat", ExecOptions::new()), async {
            let guest = peer.starts().await;
            assert_eq!(guest.execute.streams.stdin, None);
            peer.exits(&guest, 0).await;
        });
        result.unwrap();
    });
}

#[test]
fn nothing_goes_out_beyond_the_credit_that_was_given() {
    scene(async |vm, peer| {
        let (process, guest) = started(&vm, peer).await;
        process.write_stdin(vec![0; 512 << 10]).unwrap();
        let mut received = 0;
        while received < WINDOW {
            received += peer.hears_stdin(&guest).await.1.len() as u64;
        }
        assert_eq!(received, WINDOW);
        caught_up(&vm, peer).await;
        peer.heard_nothing_else();
        peer.grants(guest.stdin(), received, WINDOW + 1).await;
        assert_eq!(peer.hears_stdin(&guest).await, (WINDOW, vec![0], false));
    });
}

#[test]
fn a_write_that_does_not_fit_behind_what_is_queued_is_refused_whole() {
    let limits = limits(100);
    scene_with(limits, async |vm, peer| {
        let process = vm.spawn("cat", NONE, SpawnOptions::new()).unwrap();
        let guest = peer.starts().await;
        // The credit is used up: what follows stays queued.
        process.write_stdin(vec![1; 256 << 10]).unwrap();
        let mut received = 0;
        while received < WINDOW {
            received += peer.hears_stdin(&guest).await.1.len() as u64;
        }
        process.write_stdin(vec![2; 60]).unwrap();
        let full = process.write_stdin(vec![3; 41]).unwrap_err();
        assert!(matches!(full, ClientError::StdinFull { queued: 60, limit: 100 }), "{full}");
        process.write_stdin(vec![4; 40]).unwrap();

        peer.grants(guest.stdin(), received, 2 * WINDOW).await;
        let mut rest = Vec::new();
        while rest.len() < 100 {
            rest.extend(peer.hears_stdin(&guest).await.1);
        }
        assert_eq!(rest, [vec![2; 60], vec![4; 40]].concat());
        process.write_stdin("room again").unwrap();
    });
}

fn limits(stdin_queue_bytes: u64) -> ProcessLimits {
    let mut limits = ProcessLimits::default();
    limits.stdin_queue_bytes = stdin_queue_bytes;
    limits
}

#[test]
fn a_writer_that_waits_for_room_gets_all_of_it_through() {
    scene_with(limits(1000), async |vm, peer| {
        let (process, guest) = started(&vm, peer).await;
        let input = pattern(0, 1 << 20);
        let mut stdin = process.stdin();
        let (written, heard) = join!(
            async {
                stdin.write_all(&input).await?;
                stdin.shutdown().await
            },
            reads_to_the_end(peer, &guest)
        );
        written.unwrap();
        assert!(heard == input);
    });
}

#[test]
fn a_writer_that_waits_for_room_learns_that_the_process_has_ended() {
    scene_with(limits(1000), async |vm, peer| {
        let (process, guest) = started(&vm, peer).await;
        let (mut stdin, input) = (process.stdin(), vec![0; 1 << 20]);
        let (written, ()) = join!(stdin.write_all(&input), peer.exits(&guest, 0));
        assert_eq!(written.unwrap_err().kind(), std::io::ErrorKind::BrokenPipe);
    });
}

#[test]
fn after_close_and_after_the_exit_standard_input_is_closed() {
    scene(async |vm, peer| {
        let (process, guest) = started(&vm, peer).await;
        let pid = process.pid();
        vm.write_process_stdin(pid, "").unwrap();
        vm.close_process_stdin(pid).unwrap();
        vm.close_process_stdin(pid).unwrap();
        let closed =
            |vm: &AgentOs, pid| matches!(vm.write_process_stdin(pid, "more"), Err(ClientError::StdinClosed));
        assert!(closed(&vm, pid));
        assert_eq!(peer.hears_stdin(&guest).await, (0, Vec::new(), true));

        let (process, guest) = started(&vm, peer).await;
        let unread = process.output_from(OutputStream::Stdout, OutputFrom::Start, Overflow::Wait);
        peer.writes(guest.stdout(), b"unread").await;
        peer.exits(&guest, 0).await;
        caught_up(&vm, peer).await;
        assert!(closed(&vm, process.pid()), "before its exit is published already");
        drop(unread);
        process.wait().await.unwrap();
        assert!(closed(&vm, process.pid()));
        vm.close_process_stdin(process.pid()).unwrap();
        assert!(matches!(vm.write_process_stdin(1, "x"), Err(ClientError::ProcessNotFound(1))));
    });
}

#[test]
fn a_reader_that_stops_closes_standard_input() {
    scene(async |vm, peer| {
        let (process, guest) = started(&vm, peer).await;
        process.write_stdin("first").unwrap();
        assert_eq!(peer.hears_stdin(&guest).await.1, b"first");
        peer.stops(guest.stdin()).await;
        caught_up(&vm, peer).await;
        assert!(matches!(process.write_stdin("more"), Err(ClientError::StdinClosed)));
        peer.exits(&guest, 0).await;
        assert_eq!(process.wait().await.unwrap().code, 0);
    });
}

#[test]
fn input_that_nobody_read_is_given_up_once_the_process_has_ended() {
    scene(async |vm, peer| {
        let (process, guest) = started(&vm, peer).await;
        process.write_stdin(vec![0; 1 << 20]).unwrap();
        peer.exits(&guest, 0).await;
        process.wait().await.unwrap();
        while !matches!(peer.hears().await, Heard::Reset(stream) if stream == guest.stdin()) {}
    });
}

#[test]
fn a_write_that_races_with_the_frame_before_it_is_never_left_lying() {
    // Each byte is written the moment the one before is taken.
    scene_with(limits(1), async |vm, peer| {
        let (process, guest) = started(&vm, peer).await;
        let (mut stdin, input) = (process.stdin(), pattern(0, 5000));
        let (written, heard) = join!(
            async {
                stdin.write_all(&input).await?;
                stdin.shutdown().await
            },
            reads_to_the_end(peer, &guest)
        );
        written.unwrap();
        assert!(heard == input);
    });
}

/// A process with the whole window of its standard input used up: what is written now stays queued.
async fn with_a_full_window(vm: &AgentOs, peer: &mut Peer) -> (Process, Guest) {
    let (process, guest) = started(vm, peer).await;
    process.write_stdin(vec![0; 256 << 10]).unwrap();
    let mut received = 0;
    while received < WINDOW {
        received += peer.hears_stdin(&guest).await.1.len() as u64;
    }
    (process, guest)
}

#[test]
fn writes_that_wait_for_room_go_through_whole_and_in_turn() {
    scene_with(limits(100), async |vm, peer| {
        let (process, guest) = with_a_full_window(&vm, peer).await;
        process.write_stdin(vec![1; 80]).unwrap();
        let (first, second, third, ()) = join!(
            vm.write_process_stdin_all(process.pid(), vec![2; 90]),
            process.write_stdin_all(vec![3; 500]),
            process.write_stdin_all(vec![4; 5]),
            async {
                peer.grants(guest.stdin(), WINDOW, 2 * WINDOW).await;
                let mut heard = Vec::new();
                while heard.len() < 675 {
                    heard.extend(peer.hears_stdin(&guest).await.1);
                }
                assert_eq!(heard, [vec![1; 80], vec![2; 90], vec![3; 500], vec![4; 5]].concat());
            }
        );
        for written in [first, second, third] {
            written.unwrap();
        }
    });
}

#[test]
fn a_write_that_waits_for_room_is_taken_whole_or_not_at_all() {
    scene_with(limits(100), async |vm, peer| {
        let (process, guest) = with_a_full_window(&vm, peer).await;
        process.write_stdin(vec![1; 100]).unwrap();
        assert!(process.write_stdin_all(vec![2; 50]).now_or_never().is_none(), "there is no room");
        process.close_stdin();
        peer.grants(guest.stdin(), WINDOW, 2 * WINDOW).await;
        assert_eq!(peer.hears_stdin(&guest).await, (WINDOW, vec![1; 100], true));

        let (process, guest) = with_a_full_window(&vm, peer).await;
        process.write_stdin(vec![1; 100]).unwrap();
        let (written, ()) = join!(process.write_stdin_all(vec![2; 50]), peer.exits(&guest, 0));
        assert!(matches!(written, Err(ClientError::StdinClosed)), "{written:?}");
        let late = vm.write_process_stdin_all(process.pid(), "x").await;
        assert!(matches!(late, Err(ClientError::StdinClosed)), "{late:?}");
    });
}
