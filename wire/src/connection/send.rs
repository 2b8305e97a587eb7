//! Streams we send: credit, and whose turn it is.
//!
//! Turns go round over the lanes (VMs) and, within a lane, round over its streams. A stream is in the round only
//! while it is ready and has credit, so a turn costs the same however many streams are idle.

use std::collections::{HashMap, VecDeque};

use crate::{
    id::{StreamId, VmId},
    stdio::Header,
};

/// The stream whose turn it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Turn {
    /// Which.
    pub stream: StreamId,
    /// How many bytes it may carry: at least one, at most a chunk, the peer's largest message and the stream's credit.
    pub max_bytes: usize,
}

#[derive(Debug)]
struct Stream {
    lane: VmId,
    window: u64,
    offset: u64,
    limit: u64,
    ready: bool,
    queued: bool,
}

#[derive(Debug, Default)]
pub(super) struct Sending {
    streams: HashMap<StreamId, Stream>,
    /// The windows of all of them.
    windows: u64,
    /// Lanes that have a stream in the round, in turn order; each holds its streams in turn order.
    round: VecDeque<(VmId, VecDeque<StreamId>)>,
}

impl Sending {
    pub(super) fn open(&mut self, id: StreamId, lane: VmId, window: u64) {
        self.windows += window;
        let stream = Stream { lane, window, offset: 0, limit: window, ready: false, queued: false };
        self.streams.insert(id, stream);
    }

    pub(super) fn windows(&self) -> u64 {
        self.windows
    }

    pub(super) fn ready(&mut self, id: StreamId) {
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.ready = true;
            self.enqueue(id);
        }
    }

    pub(super) fn idle(&mut self, id: StreamId) {
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.ready = false;
        }
    }

    pub(super) fn credit(&mut self, id: StreamId, limit: u64) {
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.limit = stream.limit.max(limit);
            self.enqueue(id);
        }
    }

    pub(super) fn sent(&self, id: StreamId) -> Option<u64> {
        self.streams.get(&id).map(|stream| stream.offset)
    }

    /// Whether the stream was open.
    pub(super) fn close(&mut self, id: StreamId) -> bool {
        let closed = self.streams.remove(&id);
        self.windows -= closed.as_ref().map_or(0, |stream| stream.window);
        closed.is_some()
    }

    /// The next turn, of at most `chunk` bytes.
    pub(super) fn next_turn(&mut self, chunk: u64) -> Option<Turn> {
        while let Some((lane, mut ids)) = self.round.pop_front() {
            let turn = std::iter::from_fn(|| ids.pop_front()).find_map(|id| self.take_turn(id, chunk));
            if !ids.is_empty() {
                self.round.push_back((lane, ids));
            }
            if turn.is_some() {
                return turn;
            }
        }
        None
    }

    fn take_turn(&mut self, id: StreamId, chunk: u64) -> Option<Turn> {
        let stream = self.streams.get_mut(&id)?;
        stream.queued = false;
        let room = chunk.min(stream.limit - stream.offset);
        let max_bytes = usize::try_from(room).unwrap_or(usize::MAX);
        (stream.ready && max_bytes > 0).then_some(Turn { stream: id, max_bytes })
    }

    pub(super) fn frame(&mut self, id: StreamId, len: u64, fin: bool, more: bool) -> Option<Header> {
        let stream = self.streams.get_mut(&id)?;
        let header = Header { stream: id, offset: stream.offset, fin };
        stream.offset += len;
        debug_assert!(stream.offset <= stream.limit, "a frame never exceeds its turn");
        if fin {
            self.close(id);
        } else {
            stream.ready = more;
            self.enqueue(id);
        }
        Some(header)
    }

    /// Puts a stream into the round if it can send and is not in it yet.
    fn enqueue(&mut self, id: StreamId) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        if stream.queued || !stream.ready || stream.offset >= stream.limit {
            return;
        }
        stream.queued = true;
        let lane = stream.lane;
        match self.round.iter_mut().find(|(other, _)| *other == lane) {
            Some((_, ids)) => ids.push_back(id),
            None => self.round.push_back((lane, VecDeque::from([id]))),
        }
    }
}
