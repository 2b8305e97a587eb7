//! Reading what a process wrote: pages, both outputs as one stream, a stream as a file.

use std::{
    io::ErrorKind,
    time::{SystemTime, UNIX_EPOCH},
};

use agentvm_sdk::{
    ClientError, Output, OutputEvent, OutputEvents, OutputGap, OutputState, OutputStream, Process,
    ProcessLimits, StreamLost,
};
use futures_util::FutureExt as _;
use tokio::{io::AsyncReadExt as _, join};

use crate::{
    guest::pattern,
    scene::{caught_up, scene, scene_with, started},
};

const RETAINED: u64 = 512 << 10;

#[expect(clippy::disallowed_methods, reason = "what is told is compared with it")]
fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis().try_into().unwrap()
}

async fn next(events: &mut OutputEvents) -> OutputEvent {
    events.next().await.expect("more follows").expect("nothing is lost")
}

#[test]
fn pages_follow_each_other_and_name_what_is_gone() {
    scene(async |vm, peer| {
        let (process, guest) = started(&vm, peer).await;
        let page = process.read_output(OutputStream::Stdout, 0, 100);
        assert_eq!((page.offset, page.received, page.state), (0, 0, OutputState::Open));

        peer.floods(guest.stdout(), 1 << 20).await;
        caught_up(&vm, peer).await;
        let page = vm.read_process_output(process.pid(), OutputStream::Stdout, 7, 1000).unwrap();
        let gone = page.gone.clone().expect("the beginning is gone");
        assert_eq!((gone.start, gone.end, page.received), (7, page.offset, 1 << 20));
        assert!(page.offset >= (1 << 20) - RETAINED, "{page:?}");
        assert!(page.bytes == pattern(page.offset, 1000));

        let next = process.read_output(OutputStream::Stdout, page.next_offset(), usize::MAX);
        assert_eq!((&next.gone, next.offset, next.next_offset()), (&None, page.offset + 1000, 1 << 20));
        assert!(next.bytes == pattern(next.offset, next.bytes.len() as u64));
        assert_eq!(process.read_output(OutputStream::Stderr, 0, 100).received, 0);

        peer.finishes(guest.stdout()).await;
        peer.resets(guest.stderr()).await;
        caught_up(&vm, peer).await;
        let page = process.read_output(OutputStream::Stdout, 1 << 20, 100);
        assert_eq!((page.bytes.len(), page.gone, page.state), (0, None, OutputState::Ended));
        assert_eq!(process.read_output(OutputStream::Stderr, 0, 100).state, OutputState::Lost);
        let unknown = vm.read_process_output(99, OutputStream::Stdout, 0, 1).unwrap_err();
        assert!(matches!(unknown, ClientError::ProcessNotFound(99)), "{unknown}");
    });
}

fn at_most(vm_retained_output_bytes: u64) -> ProcessLimits {
    let mut limits = ProcessLimits::default();
    limits.vm_retained_output_bytes = vm_retained_output_bytes;
    limits
}

/// How much of its standard output a process still has, and whether that is the end of it.
fn kept(process: &Process) -> (u64, bool) {
    let page = process.read_output(OutputStream::Stdout, 0, usize::MAX);
    (page.bytes.len() as u64, page.next_offset() == page.received)
}

#[test]
fn beyond_the_bound_of_a_vm_the_oldest_ended_process_loses_its_output_first() {
    scene_with(at_most(1 << 20), async |vm, peer| {
        let (live, guest) = started(&vm, peer).await;
        peer.floods(guest.stdout(), RETAINED).await;
        let mut ended = Vec::new();
        for _ in 0..3 {
            let (process, guest) = started(&vm, peer).await;
            peer.floods(guest.stdout(), RETAINED).await;
            peer.finishes(guest.stdout()).await;
            peer.exits(&guest, 0).await;
            process.wait().await.unwrap();
            ended.push(process);
        }
        let kept: Vec<u64> = ended.iter().chain([&live]).map(|process| kept(process).0).collect();
        assert_eq!(kept[..2], [0, 0], "{kept:?}");
        assert!(kept[2] > RETAINED / 2, "the youngest keeps its own: {kept:?}");
        assert!(kept[3] > RETAINED / 4, "a live one its share: {kept:?}");
        let page = ended[0].read_output(OutputStream::Stdout, 3, 10);
        assert_eq!((page.gone, page.bytes.len()), (Some(3..RETAINED), 0));
        assert_eq!(ended[0].wait().await.unwrap().code, 0, "its exit is kept");
    });
}

#[test]
fn beyond_the_bound_of_a_vm_live_processes_share_what_there_is() {
    const BOUND: u64 = 1 << 20;
    scene_with(at_most(BOUND), async |vm, peer| {
        let mut processes = Vec::new();
        for _ in 0..8 {
            let (process, guest) = started(&vm, peer).await;
            peer.floods(guest.stdout(), 1 << 20).await;
            processes.push(process);
        }
        caught_up(&vm, peer).await;
        let kept: Vec<(u64, bool)> = processes.iter().map(kept).collect();
        let sum: u64 = kept.iter().map(|(bytes, _)| bytes).sum();
        assert!(sum <= BOUND && sum > BOUND / 2, "{kept:?}");
        assert!(kept.iter().all(|(bytes, newest)| *bytes > 0 && *newest), "{kept:?}");
    });
}

#[test]
fn both_outputs_come_in_the_order_of_their_arrival_also_to_who_comes_late() {
    scene(async |vm, peer| {
        let begun = now_ms();
        let (process, guest) = started(&vm, peer).await;
        let mut early = process.output();
        let story = [("out", "a"), ("err", "b"), ("out", "c"), ("err", "d"), ("err", "e"), ("out", "f")];
        for (stream, text) in story {
            let id = if stream == "out" { guest.stdout() } else { guest.stderr() };
            peer.writes(id, text.as_bytes()).await;
            caught_up(&vm, peer).await;
        }
        peer.finishes(guest.stdout()).await;
        peer.finishes(guest.stderr()).await;
        let mut late = vm.on_process_output(process.pid()).unwrap();
        for events in [&mut early, &mut late] {
            let (mut seen, mut offsets, mut before) = (String::new(), [0, 0], begun);
            while let Some(event) = events.next().await {
                let event = event.unwrap();
                let Output::Data(bytes) = event.output else { panic!("nothing is missing") };
                let offset = &mut offsets[usize::from(event.stream == OutputStream::Stderr)];
                assert_eq!(event.offset, *offset);
                *offset += bytes.len() as u64;
                assert!((before..=now_ms()).contains(&event.received_at_ms));
                before = event.received_at_ms;
                seen.push_str(str::from_utf8(&bytes).unwrap());
            }
            assert_eq!(seen, "abcdef");
        }
    });
}

#[test]
fn a_slow_reader_of_both_outputs_gets_exact_gaps_in_their_place() {
    const FLOOD: u64 = 2 << 20;
    scene(async |vm, peer| {
        let (process, guest) = started(&vm, peer).await;
        let mut events = process.output();
        peer.writes(guest.stderr(), b"before").await;
        peer.floods(guest.stdout(), FLOOD).await;
        peer.writes(guest.stderr(), b"after").await;
        peer.finishes(guest.stdout()).await;
        peer.finishes(guest.stderr()).await;
        caught_up(&vm, peer).await;

        let first = next(&mut events).await;
        assert_eq!((first.stream, first.output), (OutputStream::Stderr, Output::Data("before".into())));
        let gap = next(&mut events).await;
        let Output::Gap { missed_bytes } = gap.output else { panic!("{gap:?}") };
        assert_eq!((gap.stream, gap.offset), (OutputStream::Stdout, 0));
        let mut at = missed_bytes;
        while at < FLOOD {
            let event = next(&mut events).await;
            let Output::Data(bytes) = event.output else { panic!("one gap, not two") };
            assert_eq!((event.stream, event.offset), (OutputStream::Stdout, at));
            assert!(bytes == pattern(at, bytes.len() as u64));
            at += bytes.len() as u64;
        }
        let last = next(&mut events).await;
        assert_eq!((last.offset, last.output), (6, Output::Data("after".into())));
        assert_eq!(events.next().await, None);
    });
}

#[test]
fn both_outputs_until_the_exit_end_with_the_process_itself() {
    scene(async |vm, peer| {
        let (process, guest) = started(&vm, peer).await;
        let mut events = process.output().until_exit();
        peer.writes(guest.stdout(), b"own").await;
        assert_eq!(next(&mut events).await.output, Output::Data("own".into()));
        let (end, ()) = join!(events.next(), peer.exits(&guest, 0));
        assert_eq!(end, None);

        peer.writes(guest.stdout(), b"a descendant's").await;
        caught_up(&vm, peer).await;
        let mut all = process.output();
        let mut read = 0;
        while let Some(event) = all.next().now_or_never() {
            let Some(Ok(OutputEvent { output: Output::Data(bytes), .. })) = event else {
                panic!("{event:?}")
            };
            read += bytes.len();
        }
        assert_eq!(read, "owna descendant's".len(), "and somebody holds it open");
    });
}

#[test]
fn a_lost_output_is_told_after_all_that_arrived() {
    scene(async |vm, peer| {
        let (process, guest) = started(&vm, peer).await;
        peer.resets(guest.stdout()).await;
        peer.writes(guest.stderr(), b"still here").await;
        peer.finishes(guest.stderr()).await;
        caught_up(&vm, peer).await;
        let mut events = process.output();
        assert_eq!(next(&mut events).await.output, Output::Data("still here".into()));
        assert_eq!(events.next().await, Some(Err(StreamLost)));
        assert_eq!(events.next().await, None);
    });
}

#[test]
fn a_stream_reads_like_a_file_and_never_ends_where_bytes_are_missing() {
    scene(async |vm, peer| {
        let (process, guest) = started(&vm, peer).await;
        let mut whole = process.stdout().into_async_read();
        peer.floods(guest.stdout(), 1000).await;
        let mut start = [0; 999];
        whole.read_exact(&mut start).await.unwrap();
        assert_eq!(start[..], pattern(0, 999));

        peer.floods(guest.stdout(), 1 << 20).await;
        peer.finishes(guest.stdout()).await;
        caught_up(&vm, peer).await;
        let gap = whole.read_u8().await.unwrap_err();
        let missed = gap.get_ref().and_then(|gap| gap.downcast_ref::<OutputGap>()).unwrap().missed_bytes;
        let mut rest = Vec::new();
        whole.read_to_end(&mut rest).await.unwrap();
        assert!(rest == pattern(999 + missed, (1 << 20) - 999 - missed));

        let mut broken = process.stderr().into_async_read();
        peer.resets(guest.stderr()).await;
        for _ in 0..2 {
            assert_eq!(broken.read_u8().await.unwrap_err().kind(), ErrorKind::UnexpectedEof);
        }
        assert_eq!(broken.read(&mut [0]).await.unwrap_err().kind(), ErrorKind::UnexpectedEof);
    });
}
