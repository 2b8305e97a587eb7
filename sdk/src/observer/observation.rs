//! One observation as the link feeds it: lines become events, and exits wait for theirs.

use std::{
    sync::{Arc, Mutex, MutexGuard},
    task::Waker,
};

use agentvm_wire::{
    id::{StreamId, VmId},
    observer::ObserverEvent,
    process::ProcessExited,
};

use super::ring::{CursorId, Read, Ring};
use crate::{link::Link, process::entry::Entry};

/// An exit, and whom it concerns.
pub(crate) type EntryExit = (Arc<Entry>, ProcessExited);

/// One observation. Shared by the link, which feeds it, and its subscribers.
#[derive(Debug)]
pub(crate) struct Observation {
    pub(crate) stream: StreamId,
    pub(crate) vm: VmId,
    pub(super) link: Arc<Link>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    ring: Ring,
    /// The beginning of a line.
    line: Vec<u8>,
    received: u64,
    /// Exits whose event has not come in yet, by its number.
    parked: Vec<(u64, EntryExit)>,
}

impl Observation {
    pub(crate) fn new(stream: StreamId, vm: VmId, link: Arc<Link>, max_events: usize) -> Arc<Self> {
        let state = Mutex::new(State {
            ring: Ring::new(max_events),
            line: Vec::new(),
            received: 0,
            parked: Vec::new(),
        });
        Arc::new(Self { stream, vm, link, state })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no code panics under this lock")
    }

    /// Takes in what came, all of it; returns how much that is by now, and the exits that waited for it.
    pub(crate) fn data(&self, payload: &[u8], fin: bool) -> (u64, Vec<EntryExit>) {
        let mut wakers = Vec::new();
        let mut state = self.lock();
        state.received += payload.len() as u64;
        for piece in payload.split_inclusive(|byte| *byte == b'\n') {
            state.line.extend_from_slice(piece);
            if piece.ends_with(b"\n") {
                let line = std::mem::take(&mut state.line);
                match ObserverEvent::read_line(&line) {
                    Some(event) => state.ring.push(event, &mut wakers),
                    None => state.ring.skip(),
                }
            }
        }
        if fin {
            state.ring.end(&mut wakers);
        }
        let told = (state.received, state.release());
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
        told
    }

    /// Nothing more will come; returns the exits that waited.
    pub(crate) fn end(&self) -> Vec<EntryExit> {
        let mut wakers = Vec::new();
        let mut state = self.lock();
        state.ring.end(&mut wakers);
        let released = state.release();
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
        released
    }

    /// Keeps an exit until its event has come in; gives it back if it has.
    pub(crate) fn park(&self, seq: u64, exit: EntryExit) -> Option<EntryExit> {
        let mut state = self.lock();
        if state.ring.has_ended() || state.ring.reached() >= seq {
            return Some(exit);
        }
        state.parked.push((seq, exit));
        None
    }

    pub(super) fn subscribe(&self) -> CursorId {
        self.lock().ring.subscribe()
    }

    pub(super) fn read(&self, cursor: CursorId, waker: Option<&Waker>) -> Read {
        self.lock().ring.read(cursor, waker)
    }

    /// Ends one subscription behind what has come in; the observation ends with the last.
    pub(super) fn stop(&self, cursor: CursorId) {
        let mut wakers = Vec::new();
        let mut state = self.lock();
        state.ring.stop(cursor, &mut wakers);
        let forsaken = state.ring.is_forsaken() && !state.ring.has_ended();
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
        if forsaken {
            self.abandon();
        }
    }

    pub(super) fn unsubscribe(&self, cursor: CursorId) {
        self.stop(cursor);
        self.lock().ring.unsubscribe(cursor);
    }

    /// Nobody wants it any more.
    pub(crate) fn abandon(&self) {
        self.link.abandon_streams([self.stream]);
        self.link.exited(self.end());
    }
}

impl State {
    fn release(&mut self) -> Vec<EntryExit> {
        let (reached, ended) = (self.ring.reached(), self.ring.has_ended());
        let due = self.parked.extract_if(.., |(seq, _)| ended || *seq <= reached);
        due.map(|(_, exit)| exit).collect()
    }
}
