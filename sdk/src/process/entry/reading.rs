//! How handles read what a process has written.

use std::task::Waker;

use super::Entry;
use crate::stdio::{
    OutputFrom, OutputStream,
    ring::{CursorId, Overflow, Read},
};

impl Entry {
    /// A cursor on an output, where the process has it.
    pub(crate) fn subscribe(
        &self,
        which: OutputStream,
        from: OutputFrom,
        overflow: Overflow,
    ) -> Option<CursorId> {
        let mut state = self.lock();
        let ring = &mut state.output(which)?.ring;
        let at = match from {
            OutputFrom::Start => 0,
            OutputFrom::Now => ring.head(),
            OutputFrom::Offset(offset) => offset,
        };
        Some(ring.subscribe(at, overflow))
    }

    pub(crate) fn unsubscribe(&self, which: OutputStream, cursor: CursorId) {
        self.update(|state, _| {
            if let Some(output) = state.output(which) {
                output.ring.unsubscribe(cursor);
            }
            None
        });
    }

    /// What lies at a cursor; with `own_only` nothing beyond what the process itself wrote.
    pub(crate) fn read(&self, which: OutputStream, cursor: CursorId, own_only: bool, waker: &Waker) -> Read {
        let mut state = self.lock();
        let limit = if own_only { which.of(state.lifecycle.own_end()) } else { None };
        let ended = own_only && state.lifecycle.has_ended();
        let Some(output) = state.output(which) else { return Read::End };
        match output.ring.read(cursor, limit, waker) {
            Read::Pending if ended => Read::End,
            read => read,
        }
    }

    /// A cursor's owner has taken bytes; credit and the exit may follow.
    pub(crate) fn advance(&self, which: OutputStream, cursor: CursorId, bytes: usize) {
        self.update(|state, _| {
            if let Some(output) = state.output(which) {
                output.ring.advance(cursor, bytes);
            }
            None
        });
    }
}
