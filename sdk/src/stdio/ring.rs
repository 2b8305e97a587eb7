//! One output stream as the client keeps it: a ring bounded in bytes, indexed by absolute offset, with a cursor per
//! subscriber.
//!
//! Received messages are *copied* into segments that grow on demand: keeping slices of messages would pin 64 KiB for
//! a single byte.

use std::{
    collections::{BTreeMap, VecDeque},
    task::Waker,
};

use bytes::{Bytes, BytesMut};

/// What happens to a subscriber that reads more slowly than the process writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Overflow {
    /// The process never waits; the subscriber gets an exact [`Gap`](super::Output::Gap).
    #[default]
    DropOldest,
    /// Nothing is lost: the process feels back-pressure, and its exit is published only once this subscriber has
    /// taken everything the process itself wrote, or is dropped.
    Wait,
}

/// Names a cursor of one ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CursorId(u64);

/// What a cursor finds.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Read {
    /// Bytes behind the cursor; it moves on when told to.
    Data(Bytes),
    /// This many bytes are gone; the cursor stands behind them now.
    Gap(u64),
    /// Everything was read and nothing will follow.
    End,
    /// Everything was read, and what would have followed is lost.
    Lost,
    /// Nothing yet: the waker will be called.
    Pending,
}

/// When bytes came in, and after what else of the same process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Arrival {
    /// Rises over both outputs of a process.
    pub(crate) order: u64,
    /// Wall clock, epoch milliseconds.
    pub(crate) at_ms: u64,
}

/// What a ring holds from the mark before up to `until` came in together.
#[derive(Debug)]
struct Mark {
    until: u64,
    arrival: Arrival,
}

#[derive(Debug)]
struct Cursor {
    at: u64,
    overflow: Overflow,
    waker: Option<Waker>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Open,
    Finished,
    Lost,
}

#[derive(Debug)]
pub(crate) struct Ring {
    segments: VecDeque<Vec<u8>>,
    marks: VecDeque<Mark>,
    start: u64,
    head: u64,
    capacity: u64,
    end: End,
    cursors: BTreeMap<CursorId, Cursor>,
    next_cursor: u64,
}

const SEGMENT_BYTES: usize = 16 << 10;
const READ_BYTES: usize = 64 << 10;

impl Ring {
    pub(crate) fn new(capacity: u64) -> Self {
        Self {
            segments: VecDeque::new(),
            marks: VecDeque::new(),
            start: 0,
            head: 0,
            capacity,
            end: End::Open,
            cursors: BTreeMap::new(),
            next_cursor: 0,
        }
    }

    /// Offset behind the last byte received.
    pub(crate) fn head(&self) -> u64 {
        self.head
    }

    pub(crate) fn is_open(&self) -> bool {
        self.end == End::Open
    }

    /// Whether it ended short of what the process wrote.
    pub(crate) fn is_lost(&self) -> bool {
        self.end == End::Lost
    }

    /// Memory it takes: bytes and what is known of their arrival.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.head - self.start + (self.marks.len() * size_of::<Mark>()) as u64
    }

    /// How far it has come in; `None` once nothing more will.
    pub(crate) fn received(&self) -> Option<u64> {
        self.is_open().then_some(self.head)
    }

    /// How far every waiting cursor has come; `None` once nothing more will be delivered.
    pub(crate) fn delivered(&self) -> Option<u64> {
        let consumed = self.consumed();
        match self.end {
            End::Lost => None,
            End::Finished if consumed == self.head => None,
            End::Open | End::Finished => Some(consumed),
        }
    }

    /// Appends, drops the oldest bytes beyond the capacity that no waiting cursor needs, wakes every cursor. Nothing
    /// is appended behind the end.
    pub(crate) fn push(&mut self, mut bytes: &[u8], arrival: Arrival, wakers: &mut Vec<Waker>) {
        if !self.is_open() || bytes.is_empty() {
            return;
        }
        self.head += bytes.len() as u64;
        match self.marks.back_mut().filter(|mark| mark.arrival == arrival) {
            Some(mark) => mark.until = self.head,
            None => self.marks.push_back(Mark { until: self.head, arrival }),
        }
        while !bytes.is_empty() {
            let room = self.segments.back().map_or(0, |segment| SEGMENT_BYTES - segment.len());
            if room == 0 {
                self.segments.push_back(Vec::new());
                continue;
            }
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            self.segments.back_mut().expect("pushed above").extend_from_slice(now);
            bytes = later;
        }
        self.evict(self.capacity);
        self.wake_all(wakers);
    }

    /// Nothing will follow; the first ending counts.
    pub(crate) fn finish(&mut self, wakers: &mut Vec<Waker>) {
        self.end_with(End::Finished, wakers);
    }

    /// What would have followed is lost.
    pub(crate) fn lose(&mut self, wakers: &mut Vec<Waker>) {
        self.end_with(End::Lost, wakers);
    }

    fn end_with(&mut self, end: End, wakers: &mut Vec<Waker>) {
        if self.end == End::Open {
            self.end = end;
            self.wake_all(wakers);
        }
    }

    /// Wakes every cursor, to look again at something beside the ring.
    pub(crate) fn wake_all(&mut self, wakers: &mut Vec<Waker>) {
        wakers.extend(self.cursors.values_mut().filter_map(|cursor| cursor.waker.take()));
    }

    /// A cursor at `at`; what is gone of the bytes behind it shows as a gap.
    pub(crate) fn subscribe(&mut self, at: u64, overflow: Overflow) -> CursorId {
        let id = CursorId(self.next_cursor);
        self.next_cursor += 1;
        self.cursors.insert(id, Cursor { at, overflow, waker: None });
        id
    }

    /// Whoever was to be waited for gets a gap instead, if it is too slow.
    pub(crate) fn wait_for_nobody(&mut self, wakers: &mut Vec<Waker>) {
        for cursor in self.cursors.values_mut() {
            cursor.overflow = Overflow::DropOldest;
        }
        self.wake_all(wakers);
    }

    pub(crate) fn unsubscribe(&mut self, id: CursorId) {
        self.cursors.remove(&id);
        self.evict(self.capacity);
    }

    /// What lies at the cursor, up to `limit`; [`Ring::advance`] moves it. A stream that ended before `limit` is
    /// incomplete.
    pub(crate) fn read(&mut self, id: CursorId, limit: Option<u64>, waker: &Waker) -> Read {
        let Some(cursor) = self.cursors.get_mut(&id) else { return Read::End };
        if cursor.at < self.start {
            let missed = self.start - cursor.at;
            cursor.at = self.start;
            return Read::Gap(missed);
        }
        let until = limit.map_or(self.head, |limit| limit.min(self.head));
        if cursor.at < until {
            let at = cursor.at;
            return Read::Data(self.copy(at, until, READ_BYTES));
        }
        match self.end {
            _ if limit.is_some_and(|limit| cursor.at >= limit) => Read::End,
            End::Finished if limit.is_some_and(|limit| limit > self.head) => Read::Lost,
            End::Finished => Read::End,
            End::Lost => Read::Lost,
            End::Open => {
                cursor.waker = Some(waker.clone());
                Read::Pending
            }
        }
    }

    /// The cursor's owner has taken `bytes`.
    pub(crate) fn advance(&mut self, id: CursorId, bytes: usize) {
        if let Some(cursor) = self.cursors.get_mut(&id) {
            cursor.at += bytes as u64;
            self.evict(self.capacity);
        }
    }

    /// Up to where the consumer has taken the stream: the slowest waiting cursor, or all if nobody makes it wait.
    pub(crate) fn consumed(&self) -> u64 {
        self.slowest_waiting().map_or(self.head, |at| at.min(self.head))
    }

    fn slowest_waiting(&self) -> Option<u64> {
        self.cursors.values().filter(|cursor| cursor.overflow == Overflow::Wait).map(|cursor| cursor.at).min()
    }

    /// When what lies at a cursor came in, and up to where it came together. A gap counts to what is behind it.
    pub(crate) fn arrival(&self, id: CursorId) -> Option<(Arrival, u64)> {
        let at = self.cursors.get(&id)?.at.max(self.start);
        let index = self.marks.partition_point(|mark| mark.until <= at);
        let mark = self.marks.get(index).or(self.marks.back())?;
        Some((mark.arrival, mark.until))
    }

    /// Where a cursor stands, if something lies there before `limit`, be it a gap.
    pub(crate) fn waiting_at(&self, id: CursorId, limit: Option<u64>) -> Option<u64> {
        let at = self.cursors.get(&id)?.at;
        let until = limit.map_or(self.head, |limit| limit.min(self.head));
        (at < until || at < self.start).then_some(at)
    }

    /// What is held from `offset` on, at most `max_bytes`, and where that begins.
    pub(crate) fn page(&self, offset: u64, max_bytes: usize) -> (u64, Bytes) {
        let at = offset.max(self.start);
        let bytes = if at < self.head { self.copy(at, self.head, max_bytes) } else { Bytes::new() };
        (at, bytes)
    }

    fn copy(&self, at: u64, until: u64, max_bytes: usize) -> Bytes {
        let wanted = usize::try_from(until - at).map_or(max_bytes, |n| n.min(max_bytes));
        let skip = usize::try_from(at - self.start).expect("a ring lies in memory");
        let (mut index, mut offset) = (skip / SEGMENT_BYTES, skip % SEGMENT_BYTES);
        if let Some(part) = self.segments[index].get(offset..offset + wanted) {
            return Bytes::copy_from_slice(part);
        }
        let mut bytes = BytesMut::with_capacity(wanted);
        while bytes.len() < wanted {
            let segment = &self.segments[index][offset..];
            bytes.extend_from_slice(&segment[..segment.len().min(wanted - bytes.len())]);
            (index, offset) = (index + 1, 0);
        }
        bytes.freeze()
    }

    /// Drops the oldest bytes until no more than `capacity` is held, but none that a waiting cursor needs, and not the
    /// newest segment of a stream that goes on: nobody may have had the time to read it.
    pub(crate) fn evict(&mut self, capacity: u64) {
        let needed = self.slowest_waiting().unwrap_or(u64::MAX);
        while self.held_bytes() > capacity
            && (self.segments.len() > 1 || !self.is_open())
            && let Some(first) = self.segments.front()
            && self.start + first.len() as u64 <= needed
        {
            self.start += first.len() as u64;
            self.segments.pop_front();
            // The last mark stays, to tell when a gap at the end came about.
            while self.marks.len() > 1 && self.marks[0].until <= self.start {
                self.marks.pop_front();
            }
        }
    }
}
