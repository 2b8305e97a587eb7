//! Streams we receive: what may arrive, and when to grant more.
//!
//! More is granted once a quarter of the window was consumed: rarely enough that credit costs nothing, early enough
//! that a sender at full speed never runs dry. A sender that has used up its credit is granted less, so that a
//! consumer which needs nearly a whole window before it takes anything (a long line) still gets it; but never
//! crumbs, or a slow consumer would turn a stream into messages of a few bytes each.

use std::collections::{HashMap, VecDeque};

use bytes::{Buf as _, Bytes};

use super::Violation;
use crate::{id::StreamId, stdio::Header};

/// Least part of the window to grant a sender that still has credit.
const QUARTER: u64 = 4;
/// Least part of the window to grant a sender that has none left.
const SIXTEENTH: u64 = 16;

/// A grant to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Credit {
    pub(super) stream: StreamId,
    pub(super) received: u64,
    pub(super) limit: u64,
}

#[derive(Debug)]
struct Stream {
    received: u64,
    consumed: u64,
    limit: u64,
    window: u64,
    /// It stands in `due`: a later value replaces the earlier, so the queue holds each stream once.
    due: bool,
}

#[derive(Debug, Default)]
pub(super) struct Receiving {
    streams: HashMap<StreamId, Stream>,
    /// The windows of all of them.
    windows: u64,
    due: VecDeque<StreamId>,
}

impl Receiving {
    pub(super) fn open(&mut self, id: StreamId, window: u64) {
        self.windows += window;
        let stream = Stream { received: 0, consumed: 0, limit: window, window, due: false };
        self.streams.insert(id, stream);
    }

    pub(super) fn windows(&self) -> u64 {
        self.windows
    }

    /// Whether the stream was open.
    pub(super) fn close(&mut self, id: StreamId) -> bool {
        let closed = self.streams.remove(&id);
        self.windows -= closed.as_ref().map_or(0, |stream| stream.window);
        closed.is_some()
    }

    /// The new part of a frame; `None` for a stream that is closed, or for an empty frame that means nothing.
    pub(super) fn accept(
        &mut self,
        header: Header,
        mut payload: Bytes,
    ) -> Result<Option<(u64, Bytes)>, Violation> {
        let Header { stream: id, offset, fin } = header;
        let Some(stream) = self.streams.get_mut(&id) else { return Ok(None) };
        if offset > stream.received {
            let reason = format!("stream {id} has a hole: {} follows {}", offset, stream.received);
            return Err(Violation::protocol(reason));
        }
        let end = offset.saturating_add(payload.len() as u64);
        if end > stream.limit {
            let reason = format!("stream {id} sent {end} bytes, credit is {}", stream.limit);
            return Err(Violation::protocol(reason));
        }
        let seen = usize::try_from(stream.received - offset).map_or(payload.len(), |n| n.min(payload.len()));
        payload.advance(seen);
        let at = stream.received;
        stream.received += payload.len() as u64;
        if fin {
            self.close(id);
        } else {
            self.grant(id);
        }
        Ok((fin || !payload.is_empty()).then_some((at, payload)))
    }

    /// The consumer has taken everything below `offset`.
    pub(super) fn consumed(&mut self, id: StreamId, offset: u64) {
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.consumed = stream.consumed.max(offset.min(stream.received));
            self.grant(id);
        }
    }

    /// Lets credit be sent for a stream if there is enough of it.
    fn grant(&mut self, id: StreamId) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let grant = stream.consumed + stream.window - stream.limit;
        let blocked = stream.received == stream.limit;
        let least = stream.window / if blocked { SIXTEENTH } else { QUARTER };
        if grant >= least.max(1) && !stream.due {
            stream.due = true;
            self.due.push_back(id);
        }
    }

    pub(super) fn next_credit(&mut self) -> Option<Credit> {
        while let Some(id) = self.due.pop_front() {
            if let Some(stream) = self.streams.get_mut(&id) {
                stream.due = false;
                stream.limit = stream.consumed + stream.window;
                return Some(Credit { stream: id, received: stream.received, limit: stream.limit });
            }
        }
        None
    }
}
