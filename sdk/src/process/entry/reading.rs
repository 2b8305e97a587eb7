//! How handles read what a process has written.

use std::task::Waker;

use super::{Entry, state::State};
use crate::stdio::{
    Output, OutputEvent, OutputFrom, OutputPage, OutputStream,
    ring::{CursorId, Overflow, Read},
};

/// What comes next of both outputs.
pub(crate) enum Next {
    Event(OutputEvent),
    /// Both have ended.
    End,
    /// Both have ended, one of them incomplete.
    Lost,
    /// Nothing yet: the waker will be called.
    Pending,
}

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
        self.lock().read(which, cursor, None, own_only, waker)
    }

    /// What came in next at these cursors, which it moves on; with `own_only` as above.
    pub(crate) fn read_next(&self, cursors: &Cursors, own_only: bool, waker: &Waker) -> Next {
        let mut state = self.lock();
        let next = cursors
            .iter()
            .filter_map(|(which, cursor)| {
                let limit = state.own_end(*which, own_only);
                let ring = &state.output(*which)?.ring;
                let offset = ring.waiting_at(*cursor, limit)?;
                let (arrival, until) = ring.arrival(*cursor)?;
                Some((arrival, until, *which, *cursor, offset))
            })
            .min_by_key(|(arrival, ..)| arrival.order);
        if let Some((arrival, until, stream, cursor, offset)) = next {
            let output = match state.read(stream, cursor, Some(until), own_only, waker) {
                Read::Data(bytes) => Output::Data(bytes),
                Read::Gap(missed_bytes) => Output::Gap { missed_bytes },
                Read::End | Read::Lost | Read::Pending => unreachable!("something lies at the cursor"),
            };
            if let (Output::Data(bytes), Some(found)) = (&output, state.output(stream)) {
                found.ring.advance(cursor, bytes.len());
            }
            return Next::Event(OutputEvent { stream, offset, received_at_ms: arrival.at_ms, output });
        }
        let ends: Vec<Read> = cursors
            .iter()
            .map(|(which, cursor)| state.read(*which, *cursor, None, own_only, waker))
            .collect();
        match () {
            () if ends.contains(&Read::Pending) => Next::Pending,
            () if ends.contains(&Read::Lost) => Next::Lost,
            () => Next::End,
        }
    }

    /// Lets go of what each output holds beyond `share`, as far as nobody waits for it.
    pub(crate) fn shrink_outputs(&self, share: u64) {
        self.update(|state, _| {
            state.outputs().for_each(|output| output.ring.evict(share));
            None
        });
    }

    /// What is kept of an output from `offset` on.
    pub(crate) fn read_page(&self, which: OutputStream, offset: u64, max_bytes: usize) -> OutputPage {
        let mut state = self.lock();
        let Some(output) = state.output(which) else { return OutputPage::nothing(offset) };
        OutputPage::of(&output.ring, offset, max_bytes)
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

/// A cursor on each output there is.
pub(crate) type Cursors = Vec<(OutputStream, CursorId)>;

impl State {
    /// Where the process's own output ends, if that is asked for and known.
    fn own_end(&self, which: OutputStream, own_only: bool) -> Option<u64> {
        if own_only { which.of(self.lifecycle.own_end()) } else { None }
    }

    fn read(
        &mut self,
        which: OutputStream,
        cursor: CursorId,
        until: Option<u64>,
        own_only: bool,
        waker: &Waker,
    ) -> Read {
        let limit = [self.own_end(which, own_only), until].into_iter().flatten().min();
        let ended = own_only && self.lifecycle.has_ended();
        let Some(output) = self.output(which) else { return Read::End };
        match output.ring.read(cursor, limit, waker) {
            Read::Pending if ended => Read::End,
            read => read,
        }
    }
}
