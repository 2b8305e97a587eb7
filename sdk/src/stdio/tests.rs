//! The ring against a model that forgets nothing, and the stdin queue against one that is a list of bytes.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
};

use bytes::Bytes;
use proptest::{collection::vec, prelude::*};

use super::{
    ring::{Arrival, CursorId, Overflow, Read, Ring},
    stdin::{StdinChunk, StdinQueue},
};
use crate::error::ClientError;

const AT_ONCE: Arrival = Arrival { order: 0, at_ms: 0 };
/// What a ring takes for each arrival that it can tell from the one before.
const MARK: u64 = 24;
const CAPACITY: u64 = 40_000;
const SEGMENT: u64 = 16 << 10;
/// The most that one read gives.
const CHUNK: u64 = 64 << 10;

fn pattern(offset: u64, len: u64) -> Vec<u8> {
    (offset..offset + len).map(|at| u8::try_from(at % 251).expect("below 251")).collect()
}

#[derive(Debug, Clone)]
enum Step {
    /// How many bytes, and whether they come in apart from those before.
    Push(u64, bool),
    /// At this part of the way from 0 to the head and half as far again.
    Subscribe(f64, Overflow),
    /// With which cursor, up to which part of the stream, and which part of what it got it takes.
    Read(usize, Option<f64>, f64),
    Unsubscribe(usize),
    Finish,
    Lose,
}

fn step() -> impl Strategy<Value = Step> {
    let part = || 0.0..1.5;
    let overflow = prop_oneof![Just(Overflow::DropOldest), Just(Overflow::Wait)];
    prop_oneof![
        8 => (0_u64..30_000, any::<bool>()).prop_map(|(len, apart)| Step::Push(len, apart)),
        3 => (part(), overflow).prop_map(|(at, overflow)| Step::Subscribe(at, overflow)),
        8 => (any::<usize>(), proptest::option::of(part()), 0.0..=1.0)
            .prop_map(|(cursor, limit, taken)| Step::Read(cursor, limit, taken)),
        1 => any::<usize>().prop_map(Step::Unsubscribe),
        1 => Just(Step::Finish),
        1 => Just(Step::Lose),
    ]
}

/// What a ring must look like from outside: the stream is the pattern, and the model forgets none of it.
struct Model {
    ring: Ring,
    head: u64,
    end: Option<Read>,
    cursors: Vec<Subscriber>,
    /// Up to where the stream went with each arrival, by its order.
    arrived: Vec<u64>,
}

struct Subscriber {
    id: CursorId,
    at: u64,
    waits: bool,
    /// It began with a byte that was retained: as long as it waits it loses nothing.
    whole: bool,
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a part of a few thousand bytes"
)]
fn part_of(whole: u64, part: f64) -> u64 {
    (whole as f64 * part) as u64
}

impl Model {
    fn new() -> Self {
        Self { ring: Ring::new(CAPACITY), head: 0, end: None, cursors: Vec::new(), arrived: Vec::new() }
    }

    fn play(&mut self, step: &Step) {
        match *step {
            Step::Push(len, apart) => {
                if apart || self.arrived.is_empty() {
                    self.arrived.push(self.head);
                }
                let arrival = Arrival { order: self.arrived.len() as u64, at_ms: 0 };
                self.ring.push(&pattern(self.head, len), arrival, &mut Vec::new());
                self.head += if self.end.is_none() { len } else { 0 };
                *self.arrived.last_mut().unwrap() = self.head;
            }
            Step::Subscribe(part, overflow) => {
                let at = part_of(self.head, part);
                let whole = at >= self.start();
                let id = self.ring.subscribe(at, overflow);
                self.cursors.push(Subscriber { id, at, waits: overflow == Overflow::Wait, whole });
            }
            Step::Read(index, limit, taken) if !self.cursors.is_empty() => {
                self.read(index % self.cursors.len(), limit, taken);
            }
            Step::Unsubscribe(index) if !self.cursors.is_empty() => {
                let gone = self.cursors.swap_remove(index % self.cursors.len());
                self.ring.unsubscribe(gone.id);
            }
            Step::Read(..) | Step::Unsubscribe(_) => {}
            Step::Finish => {
                self.ring.finish(&mut Vec::new());
                self.end.get_or_insert(Read::End);
            }
            Step::Lose => {
                self.ring.lose(&mut Vec::new());
                self.end.get_or_insert(Read::Lost);
            }
        }
        self.check();
    }

    fn read(&mut self, index: usize, limit: Option<f64>, taken: f64) {
        let limit = limit.map(|part| part_of(self.head, part));
        let start = self.start();
        let until = limit.unwrap_or(u64::MAX).min(self.head);
        let cursor = &mut self.cursors[index];
        let arrival = self.ring.arrival(cursor.id);
        let found = self.ring.read(cursor.id, limit, Waker::noop());
        let order = self.arrived.partition_point(|until| *until <= cursor.at.max(start));
        if let Some(until) = self.arrived.get(order) {
            let expected = Arrival { order: order as u64 + 1, at_ms: 0 };
            assert_eq!(arrival, Some((expected, *until)));
        }
        if cursor.at < start {
            assert!(!(cursor.waits && cursor.whole), "a waiting subscriber loses nothing");
            assert_eq!(found, Read::Gap(start - cursor.at));
            cursor.at = start;
            cursor.whole = true;
        } else if cursor.at < until {
            let Read::Data(bytes) = found else { panic!("{} lies before {until}: {found:?}", cursor.at) };
            let len = bytes.len() as u64;
            assert!((1..=CHUNK.min(until - cursor.at)).contains(&len));
            assert_eq!(bytes, pattern(cursor.at, len));
            let taken = part_of(len, taken);
            self.ring.advance(cursor.id, usize::try_from(taken).unwrap());
            cursor.at += taken;
        } else {
            let expected = match (limit, &self.end) {
                (Some(limit), _) if cursor.at >= limit => &Read::End,
                // It ended before the limit.
                (Some(_), Some(_)) => &Read::Lost,
                (_, Some(end)) => end,
                (_, None) => &Read::Pending,
            };
            assert_eq!(&found, expected);
        }
    }

    /// The oldest byte retained, as a subscriber would learn it.
    fn start(&mut self) -> u64 {
        let probe = self.ring.subscribe(0, Overflow::DropOldest);
        let found = self.ring.read(probe, None, Waker::noop());
        self.ring.unsubscribe(probe);
        if let Read::Gap(missed) = found { missed } else { 0 }
    }

    fn check(&mut self) {
        let waiting = self.cursors.iter().filter(|cursor| cursor.waits).map(|cursor| cursor.at).min();
        let consumed = waiting.unwrap_or(self.head).min(self.head);
        assert_eq!((self.ring.head(), self.ring.consumed()), (self.head, consumed));

        let start = self.start();
        let retained = self.head - start;
        assert!(retained <= CAPACITY || waiting.is_some_and(|at| at < start + SEGMENT), "{retained} bytes");
        let least = CAPACITY - SEGMENT - self.arrived.len() as u64 * MARK;
        assert!(start == 0 || retained > least, "only {retained} bytes are retained");
    }
}

#[derive(Debug, Clone)]
enum StdinStep {
    Write(usize),
    PollWrite(usize),
    Take(usize),
    Close,
    Abandon,
}

fn stdin_step() -> impl Strategy<Value = StdinStep> {
    prop_oneof![
        6 => (0_usize..90).prop_map(StdinStep::Write),
        6 => (0_usize..90).prop_map(StdinStep::PollWrite),
        8 => (1_usize..50).prop_map(StdinStep::Take),
        1 => Just(StdinStep::Close),
        1 => Just(StdinStep::Abandon),
    ]
}

/// A queue and what must come out of it.
struct StdinModel {
    queue: StdinQueue,
    queued: VecDeque<u8>,
    written: u64,
    open: bool,
    end_due: bool,
}

const STDIN_LIMIT: usize = 100;

impl StdinModel {
    fn new() -> Self {
        let queue = StdinQueue::new(STDIN_LIMIT as u64);
        Self { queue, queued: VecDeque::new(), written: 0, open: true, end_due: false }
    }

    fn play(&mut self, step: &StdinStep) {
        match *step {
            StdinStep::Write(len) => {
                let bytes = pattern(self.written, len as u64);
                let result = self.queue.write(bytes.clone().into());
                let fits = self.queued.is_empty() || self.queued.len() + len <= STDIN_LIMIT;
                match result {
                    Ok(()) if self.open && fits => self.accept(&bytes),
                    Err(ClientError::StdinClosed) if !self.open => {}
                    Err(ClientError::StdinFull { queued, limit }) if self.open && !fits => {
                        assert_eq!((queued, limit), (self.queued.len() as u64, STDIN_LIMIT as u64));
                    }
                    other => panic!("a write of {len} gave {other:?}"),
                }
            }
            StdinStep::PollWrite(len) => {
                let bytes = pattern(self.written, len as u64);
                let room = STDIN_LIMIT.saturating_sub(self.queued.len());
                match self.queue.poll_write(&mut Context::from_waker(Waker::noop()), &bytes) {
                    Poll::Ready(Ok(taken)) if self.open => {
                        assert_eq!(taken, len.min(room));
                        self.accept(&bytes[..taken]);
                    }
                    Poll::Ready(Err(ClientError::StdinClosed)) if !self.open => {}
                    Poll::Pending if self.open => assert!(room == 0 && len > 0),
                    other => panic!("a write of {len} gave {other:?}"),
                }
            }
            StdinStep::Take(max) => {
                let StdinChunk { bytes, fin, more } = self.queue.take(max, &mut Vec::new());
                assert!(bytes.len() <= max && (self.queued.is_empty() || !bytes.is_empty()));
                assert!(self.queued.drain(..bytes.len()).eq(bytes));
                assert_eq!(more, !self.queued.is_empty());
                assert_eq!(fin, self.end_due && self.queued.is_empty(), "the end comes last, and once");
                self.end_due &= !fin;
            }
            StdinStep::Close => {
                self.queue.close();
                self.end_due |= self.open;
                self.open = false;
            }
            StdinStep::Abandon => {
                self.queue.abandon(&mut Vec::new());
                (self.open, self.end_due) = (false, false);
                self.queued.clear();
            }
        }
    }

    fn accept(&mut self, bytes: &[u8]) {
        self.queued.extend(bytes);
        self.written += bytes.len() as u64;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_ring_gives_every_subscriber_the_stream_with_exact_gaps(steps in vec(step(), 0..60)) {
        let mut model = Model::new();
        for step in &steps {
            model.play(step);
        }
    }

    #[test]
    fn a_stdin_queue_gives_out_what_it_took_in_order_and_the_end_last(steps in vec(stdin_step(), 0..60)) {
        let mut model = StdinModel::new();
        for step in &steps {
            model.play(step);
        }
    }
}

#[derive(Default)]
struct CountingWaker(AtomicUsize);

impl Wake for CountingWaker {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_writer_that_waits_is_woken_once_there_is_room_however_often_it_was_polled() {
    let count = Arc::new(CountingWaker::default());
    let waker = Waker::from(count.clone());
    let mut cx = Context::from_waker(&waker);
    let mut queue = StdinQueue::new(4);
    queue.write(Bytes::from_static(b"full")).unwrap();
    for _ in 0..3 {
        assert!(queue.poll_write(&mut cx, b"more").is_pending());
    }
    let mut wakers = Vec::new();
    queue.take(1, &mut wakers);
    wakers.into_iter().for_each(Waker::wake);
    assert_eq!(count.0.load(Ordering::Relaxed), 1);
    assert!(matches!(queue.poll_write(&mut cx, b"more"), Poll::Ready(Ok(1))));
}

#[test]
fn a_queue_without_any_room_of_its_own_still_passes_one_byte_at_a_time() {
    let mut queue = StdinQueue::new(0);
    let mut cx = Context::from_waker(Waker::noop());
    assert!(matches!(queue.poll_write(&mut cx, b"ab"), Poll::Ready(Ok(1))));
    assert!(queue.poll_write(&mut cx, b"b").is_pending());
    assert_eq!(queue.take(9, &mut Vec::new()).bytes, "a");
}

#[test]
fn a_ring_that_is_short_of_room_drops_what_nobody_waits_for_and_keeps_the_newest() {
    let mut ring = Ring::new(CAPACITY);
    let waiting = ring.subscribe(SEGMENT, Overflow::Wait);
    ring.push(&pattern(0, 2 * SEGMENT + 5), AT_ONCE, &mut Vec::new());
    ring.evict(0);
    assert_eq!(ring.page(0, 1).0, SEGMENT, "a waiting subscriber needs the rest");
    ring.unsubscribe(waiting);
    ring.evict(0);
    assert_eq!(ring.page(0, 9), (2 * SEGMENT, pattern(2 * SEGMENT, 5).into()));
    ring.finish(&mut Vec::new());
    ring.evict(0);
    assert_eq!(ring.page(0, 9), (2 * SEGMENT + 5, Bytes::new()));
}

#[test]
fn every_subscriber_that_waits_is_woken_by_data_and_by_the_end() {
    let mut ring = Ring::new(CAPACITY);
    let cursors = [Overflow::DropOldest, Overflow::Wait].map(|overflow| ring.subscribe(0, overflow));
    let mut wakers = Vec::new();
    for cursor in cursors {
        assert_eq!(ring.read(cursor, None, Waker::noop()), Read::Pending);
    }
    ring.push(b"x", AT_ONCE, &mut wakers);
    assert_eq!(wakers.len(), 2);
    for cursor in cursors {
        ring.advance(cursor, 1);
        assert_eq!(ring.read(cursor, None, Waker::noop()), Read::Pending);
    }
    ring.finish(&mut wakers);
    assert_eq!(wakers.len(), 4);
}

#[test]
fn small_writes_to_standard_input_wait_and_go_out_as_one() {
    let mut queue = StdinQueue::new(1 << 20);
    for at in 0..100_000u32 {
        queue.write(Bytes::copy_from_slice(&[at.to_le_bytes()[0]])).unwrap();
    }
    queue.write(vec![7; 10_000].into()).unwrap();
    queue.write(Bytes::from_static(b"tail")).unwrap();
    assert!(matches!(
        queue.write(vec![7; 1 << 20].into()),
        Err(ClientError::StdinFull { queued: 110_004, .. })
    ));
    queue.close();
    let mut all = Vec::new();
    let mut chunks = 0;
    loop {
        let StdinChunk { bytes, fin, more } = queue.take(64 << 10, &mut Vec::new());
        all.extend_from_slice(&bytes);
        chunks += 1;
        assert_eq!(fin, !more);
        if fin {
            break;
        }
    }
    assert!(chunks < 10, "{chunks} messages");
    let expected: Vec<u8> =
        (0..100_000u32).map(|at| at.to_le_bytes()[0]).chain([7; 10_000]).chain(*b"tail").collect();
    assert!(all == expected);
}
