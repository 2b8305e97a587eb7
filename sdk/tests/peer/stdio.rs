//! Output: rings, subscribers, credit, gaps, and streams that end or break.

use agentvm_sdk::{
    ByteStream, Output, OutputFrom, OutputStream, Overflow, Process, StreamLost, wire::stdio::Header,
};
use futures_util::FutureExt as _;
use tokio::join;

use crate::{
    guest::pattern,
    scene::{caught_up, scene, started},
};

const WINDOW: u64 = 256 << 10;
const RETAINED: u64 = 512 << 10;

fn stdout(process: &Process, from: OutputFrom, overflow: Overflow) -> ByteStream {
    process.output_from(OutputStream::Stdout, from, overflow)
}

async fn next(stream: &mut ByteStream) -> Output {
    stream.next().await.expect("more follows").expect("nothing is lost")
}

#[test]
fn d5_a_slow_subscriber_gets_one_exact_gap_and_no_exit_is_lost() {
    const TOTAL: u64 = 2 << 20;
    scene(async |vm, peer| {
        let (process, guest) = started(&vm, peer).await;
        let mut slow = process.stdout();
        peer.floods(guest.stdout(), TOTAL).await;
        peer.finishes(guest.stdout()).await;
        peer.exits(&guest, 0).await;
        assert_eq!(process.wait().await.unwrap().code, 0);

        let Output::Gap { missed_bytes } = next(&mut slow).await else { panic!("a gap comes first") };
        assert!((TOTAL - RETAINED..TOTAL).contains(&missed_bytes), "{missed_bytes} are missing");
        let rest = slow.collect().await.unwrap();
        assert!(rest == pattern(missed_bytes, TOTAL - missed_bytes));
    });
}

#[test]
fn d5_a_subscriber_that_falls_behind_midway_goes_on_behind_its_gap() {
    scene(async |vm, peer| {
        let (process, guest) = started(&vm, peer).await;
        let mut slow = process.stdout();
        peer.writes(guest.stdout(), b"first").await;
        assert_eq!(next(&mut slow).await, Output::Data("first".into()));
        peer.floods(guest.stdout(), 1 << 20).await;
        caught_up(&vm, peer).await;

        let Output::Gap { missed_bytes } = next(&mut slow).await else { panic!("a gap comes first") };
        let Output::Data(bytes) = next(&mut slow).await else { panic!("one gap, not two") };
        assert!(bytes == pattern(5 + missed_bytes, bytes.len() as u64));
    });
}

#[test]
fn d9_a_subscriber_that_comes_late_sees_what_was_written_before() {
    scene(async |vm, peer| {
        let (process, guest) = started(&vm, peer).await;
        peer.writes(guest.stdout(), b"early").await;
        caught_up(&vm, peer).await;
        assert_eq!(next(&mut process.stdout()).await, Output::Data("early".into()));

        peer.finishes(guest.stdout()).await;
        peer.exits(&guest, 0).await;
        process.wait().await.unwrap();
        assert_eq!(vm.on_process_stdout(process.pid()).unwrap().collect().await.unwrap(), b"early");
    });
}

#[test]
fn d10_streams_end_with_the_last_writer_while_the_registry_still_knows_the_process() {
    scene(async |vm, peer| {
        let (process, guest) = started(&vm, peer).await;
        let (mut stdout, mut stderr) = (process.stdout(), process.stderr());
        peer.exits(&guest, 0).await;
        process.wait().await.unwrap();
        assert!(stdout.next().now_or_never().is_none(), "a descendant may hold it open");

        peer.finishes(guest.stdout()).await;
        peer.finishes(guest.stderr()).await;
        assert_eq!(stdout.next().await, None);
        assert_eq!(stderr.next().await, None);
        assert!(vm.get_process(process.pid()).is_ok());
        assert_eq!(stdout.next().await, None, "an end stays one");
    });
}

#[test]
fn d17_a_waiting_subscriber_that_does_not_read_grants_one_window_and_no_more() {
    scene(async |vm, peer| {
        let (process, guest) = started(&vm, peer).await;
        let mut waiting = stdout(&process, OutputFrom::Start, Overflow::Wait);
        let _reading = process.stdout();
        peer.floods(guest.stdout(), WINDOW).await;
        caught_up(&vm, peer).await;
        assert_eq!(peer.granted(guest.stdout()), WINDOW);

        let Output::Data(bytes) = next(&mut waiting).await else { panic!("nothing is dropped") };
        let taken = bytes.len() as u64;
        peer.hears_credit(guest.stdout(), WINDOW + taken).await;
        assert_eq!(peer.granted(guest.stdout()), WINDOW + taken);
    });
}

#[test]
fn d17_a_waiting_subscriber_gets_every_byte_in_its_own_time() {
    const TOTAL: u64 = 2 << 20;
    scene(async |vm, peer| {
        let (process, guest) = started(&vm, peer).await;
        let waiting = stdout(&process, OutputFrom::Start, Overflow::Wait);
        let (all, ()) = join!(waiting.collect(), async {
            peer.floods(guest.stdout(), TOTAL).await;
            peer.finishes(guest.stdout()).await;
        });
        assert!(all.unwrap() == pattern(0, TOTAL));
    });
}

#[test]
fn d17_without_a_waiting_subscriber_credit_flows_whether_or_not_anybody_reads() {
    scene(async |vm, peer| {
        let (process, guest) = started(&vm, peer).await;
        peer.floods(guest.stdout(), 1 << 20).await;
        let _asleep = process.stdout();
        peer.floods(guest.stdout(), 2 << 20).await;
    });
}

#[test]
fn a_waiting_subscriber_that_is_dropped_lets_credit_flow_again() {
    scene(async |vm, peer| {
        let (process, guest) = started(&vm, peer).await;
        let waiting = stdout(&process, OutputFrom::Start, Overflow::Wait);
        peer.floods(guest.stdout(), WINDOW).await;
        caught_up(&vm, peer).await;
        drop(waiting);
        peer.floods(guest.stdout(), 1 << 20).await;
    });
}

#[test]
fn a_waiting_subscriber_of_bytes_far_ahead_does_not_stop_those_before() {
    const AHEAD: u64 = 1 << 20;
    scene(async |vm, peer| {
        let (process, guest) = started(&vm, peer).await;
        let mut ahead = stdout(&process, OutputFrom::Offset(AHEAD), Overflow::Wait);
        peer.floods(guest.stdout(), AHEAD + 3).await;
        assert_eq!(next(&mut ahead).await, Output::Data(pattern(AHEAD, 3).into()));
    });
}

#[test]
fn subscribers_begin_where_they_ask_to() {
    scene(async |vm, peer| {
        let (process, guest) = started(&vm, peer).await;
        peer.writes(guest.stdout(), b"0123456789").await;
        caught_up(&vm, peer).await;
        let start = stdout(&process, OutputFrom::Start, Overflow::DropOldest);
        let now = stdout(&process, OutputFrom::Now, Overflow::DropOldest);
        let middle = stdout(&process, OutputFrom::Offset(7), Overflow::DropOldest);
        peer.writes(guest.stdout(), b"!").await;
        peer.finishes(guest.stdout()).await;

        assert_eq!(start.collect().await.unwrap(), b"0123456789!");
        assert_eq!(now.collect().await.unwrap(), b"!");
        assert_eq!(middle.collect().await.unwrap(), b"789!");
    });
}

#[test]
fn a_subscriber_that_asks_for_bytes_that_are_gone_is_told_how_many() {
    scene(async |vm, peer| {
        let (process, guest) = started(&vm, peer).await;
        peer.floods(guest.stdout(), 1 << 20).await;
        caught_up(&vm, peer).await;
        let gap = async |from| match next(&mut stdout(&process, from, Overflow::DropOldest)).await {
            Output::Gap { missed_bytes } => missed_bytes,
            Output::Data(_) => 0,
        };
        let from_start = gap(OutputFrom::Start).await;
        assert!(from_start >= (1 << 20) - RETAINED);
        assert_eq!(gap(OutputFrom::Offset(1000)).await, from_start - 1000);
        assert_eq!(gap(OutputFrom::Offset(from_start)).await, 0);
    });
}

#[test]
fn d18_output_reaches_its_own_process_and_no_other() {
    scene(async |vm, peer| {
        let mut played = Vec::new();
        for _ in 0..3 {
            let (process, guest) = started(&vm, peer).await;
            played.push((process.stdout(), process.stderr(), guest));
        }
        for (index, (_, _, guest)) in played.iter().enumerate() {
            peer.writes(guest.stdout(), format!("out {index}").as_bytes()).await;
            peer.writes(guest.stderr(), format!("err {index}").as_bytes()).await;
        }
        caught_up(&vm, peer).await;
        for (index, (stdout, stderr, _)) in played.iter_mut().enumerate() {
            assert_eq!(next(stdout).await, Output::Data(format!("out {index}").into()));
            assert_eq!(next(stderr).await, Output::Data(format!("err {index}").into()));
            assert!(stdout.next().now_or_never().is_none());
        }
    });
}

#[test]
fn bytes_that_come_twice_are_delivered_once() {
    scene(async |vm, peer| {
        let (process, guest) = started(&vm, peer).await;
        let stream = guest.stdout();
        peer.frame(Header { stream, offset: 0, fin: false }, b"hello").await;
        peer.frame(Header { stream, offset: 3, fin: false }, b"lo world").await;
        peer.frame(Header { stream, offset: 11, fin: true }, b"").await;
        assert_eq!(process.stdout().collect().await.unwrap(), b"hello world");
    });
}

#[test]
fn a_stream_that_the_sidecar_resets_is_lost_and_the_other_lives_on() {
    scene(async |vm, peer| {
        let (process, guest) = started(&vm, peer).await;
        let (mut stdout, mut stderr) = (process.stdout(), process.stderr());
        peer.writes(guest.stdout(), b"half").await;
        peer.resets(guest.stdout()).await;
        assert_eq!(next(&mut stdout).await, Output::Data("half".into()));
        assert_eq!(stdout.next().await, Some(Err(StreamLost)));
        assert_eq!(stdout.next().await, None);

        peer.writes(guest.stderr(), b"fine").await;
        assert_eq!(next(&mut stderr).await, Output::Data("fine".into()));
        peer.exited(guest.exit(100, 4)).await;
        assert_eq!(process.wait().await.unwrap().code, 0, "what is lost holds nobody up");
    });
}

#[test]
fn an_oversized_message_costs_its_stream_and_nothing_else() {
    scene(async |vm, peer| {
        let (process, guest) = started(&vm, peer).await;
        let mut stdout = process.stdout();
        let header = Header { stream: guest.stdout(), offset: 0, fin: false };
        peer.frame(header, &vec![0; 300 << 10]).await;
        assert_eq!(stdout.next().await, Some(Err(StreamLost)));

        peer.exited(guest.exit(300 << 10, 0)).await;
        assert_eq!(process.wait().await.unwrap().code, 0);
        caught_up(&vm, peer).await;
    });
}

#[test]
fn until_the_end_a_reader_is_told_nothing_of_it() {
    scene(async |vm, peer| {
        let (process, guest) = started(&vm, peer).await;
        let mut stdout = process.stdout();
        assert!(stdout.next().now_or_never().is_none());
        let (heard, ()) = join!(stdout.next(), peer.writes(guest.stdout(), b"woken"));
        assert_eq!(heard, Some(Ok(Output::Data("woken".into()))));
    });
}

/// How many processes with three streams each have full windows at once: 64 MiB of 256 KiB each.
const FULL_WINDOWS: usize = (64 << 20) / (3 * (256 << 10));

#[test]
fn windows_shrink_where_all_together_would_be_too_much_and_nothing_is_lost_through_them() {
    scene(async |vm, peer| {
        const TOTAL: u64 = 1 << 20;
        let mut full = Vec::new();
        for _ in 0..FULL_WINDOWS {
            let (process, guest) = started(&vm, peer).await;
            assert_eq!(guest.execute.window_bytes, None);
            full.push((process, guest));
        }
        let (process, guest) = started(&vm, peer).await;
        assert_eq!(guest.execute.window_bytes, Some(16 << 10));
        let mut waiting = process.output_from(OutputStream::Stdout, OutputFrom::Start, Overflow::Wait);
        peer.floods(guest.stdout(), 16 << 10).await;
        caught_up(&vm, peer).await;
        assert_eq!(peer.granted(guest.stdout()), 16 << 10, "nothing was taken, nothing is granted");
        let read = async {
            let mut taken = 0;
            while taken < TOTAL {
                let Some(Ok(Output::Data(bytes))) = waiting.next().await else { panic!("no gap, no end") };
                taken += bytes.len() as u64;
            }
        };
        join!(read, peer.floods(guest.stdout(), TOTAL));
        process.write_stdin(vec![b'x'; 40 << 10]).unwrap();
        let mut sent = 0;
        while sent < 16 << 10 {
            let (_, bytes, _) = peer.hears_stdin(&guest).await;
            sent += bytes.len();
        }
        assert_eq!(sent, 16 << 10);

        // A process that ends makes room for another.
        let (ended, guest) = full.pop().unwrap();
        peer.exits(&guest, 0).await;
        peer.finishes(guest.stdout()).await;
        peer.finishes(guest.stderr()).await;
        assert_eq!(ended.wait().await.unwrap().code, 0);
        caught_up(&vm, peer).await;
        assert_eq!(started(&vm, peer).await.1.execute.window_bytes, None);
        assert_eq!(started(&vm, peer).await.1.execute.window_bytes, Some(16 << 10));
    });
}
