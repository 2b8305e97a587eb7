//! The events of one observation: a ring bounded in events and bytes, with a cursor for each subscriber.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    task::Waker,
};

use agentvm_wire::observer::{MAX_EVENTS_BYTES, ObserverEvent, ObserverEventKind as Kind};

/// Names a cursor of one ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct CursorId(u64);

/// What a cursor finds.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Read {
    /// The next event; the cursor has moved on.
    Event(Box<ObserverEvent>),
    /// Nothing follows.
    End,
    /// Nothing yet: the waker will be called.
    Pending,
}

#[derive(Debug)]
pub(super) struct Ring {
    events: VecDeque<Arc<ObserverEvent>>,
    /// How many were dropped before these.
    dropped: u64,
    bytes: usize,
    max_events: usize,
    /// The number, as the sidecar counts, of the last that came in.
    reached: u64,
    ended: bool,
    cursors: BTreeMap<CursorId, Cursor>,
    made: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    /// How many events of the ring lie before it.
    index: u64,
    /// The number that the next one has, unless it was dropped.
    seq: u64,
}

#[derive(Debug)]
struct Cursor {
    at: Place,
    /// It was stopped here.
    until: Option<Place>,
    /// How many events it has given out.
    given: u64,
    wakers: Vec<Waker>,
}

impl Ring {
    pub(super) fn new(max_events: usize) -> Self {
        Self {
            events: VecDeque::new(),
            dropped: 0,
            bytes: 0,
            max_events,
            reached: 0,
            ended: false,
            cursors: BTreeMap::new(),
            made: 0,
        }
    }

    /// The number of the last event that came in.
    pub(super) fn reached(&self) -> u64 {
        self.reached
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ended
    }

    /// Adds an event; the oldest go where there is no room.
    pub(super) fn push(&mut self, event: ObserverEvent, wakers: &mut Vec<Waker>) {
        self.reached = event.seq.saturating_add(event.numbers()).saturating_sub(1);
        self.bytes += event.size_bytes();
        self.events.push_back(Arc::new(event));
        while self.events.len() > self.max_events || self.bytes > MAX_EVENTS_BYTES && self.events.len() > 1 {
            self.bytes -= self.events.pop_front().map_or(0, |event| event.size_bytes());
            self.dropped += 1;
        }
        self.wake(wakers);
    }

    /// An event that cannot be read has come in.
    pub(super) fn skip(&mut self) {
        self.reached += 1;
    }

    /// Nothing will follow.
    pub(super) fn end(&mut self, wakers: &mut Vec<Waker>) {
        self.ended = true;
        self.wake(wakers);
    }

    /// A cursor before the first event there was.
    pub(super) fn subscribe(&mut self) -> CursorId {
        let id = CursorId(self.made);
        self.made += 1;
        let at = Place { index: 0, seq: 1 };
        self.cursors.insert(id, Cursor { at, until: None, given: 0, wakers: Vec::new() });
        id
    }

    /// What has come in so far is all that this cursor will find.
    pub(super) fn stop(&mut self, id: CursorId, wakers: &mut Vec<Waker>) {
        let end = Place { index: self.dropped + self.events.len() as u64, seq: self.reached + 1 };
        if let Some(cursor) = self.cursors.get_mut(&id) {
            cursor.until.get_or_insert(end);
            wakers.append(&mut cursor.wakers);
        }
    }

    pub(super) fn unsubscribe(&mut self, id: CursorId) {
        self.cursors.remove(&id);
    }

    /// Whether nobody waits for what will come.
    pub(super) fn is_forsaken(&self) -> bool {
        self.cursors.values().all(|cursor| cursor.until.is_some())
    }

    pub(super) fn read(&mut self, id: CursorId, waker: Option<&Waker>) -> Read {
        let Some(cursor) = self.cursors.get_mut(&id) else { return Read::End };
        let Some(mut event) = cursor.next(&self.events, self.dropped, self.reached) else {
            if self.ended || cursor.until.is_some() {
                return Read::End;
            }
            if let Some(waker) =
                waker.filter(|waker| !cursor.wakers.iter().any(|other| other.will_wake(waker)))
            {
                cursor.wakers.push(waker.clone());
            }
            return Read::Pending;
        };
        cursor.given += 1;
        event.seq = cursor.given;
        Read::Event(Box::new(event))
    }

    fn wake(&mut self, wakers: &mut Vec<Waker>) {
        self.cursors.values_mut().for_each(|cursor| wakers.append(&mut cursor.wakers));
    }
}

impl Cursor {
    fn next(
        &mut self,
        events: &VecDeque<Arc<ObserverEvent>>,
        dropped: u64,
        reached: u64,
    ) -> Option<ObserverEvent> {
        if self.until.is_some_and(|until| self.at.index >= until.index) {
            return None;
        }
        if let Some(first) = events.front().filter(|_| self.at.index < dropped) {
            let first_place = Place { index: dropped, seq: first.seq };
            let place = self.until.filter(|until| until.index < dropped).unwrap_or(first_place);
            let count = place.seq.saturating_sub(self.at.seq);
            self.at = place;
            let mut loss =
                ObserverEvent::new(first.category, Kind::Loss { reason: Kind::OVERFLOW.to_owned(), count });
            (loss.timestamp_ms, loss.mono_ns) = (first.timestamp_ms, first.mono_ns);
            return Some(loss);
        }
        let index = usize::try_from(self.at.index - dropped).ok()?;
        let event = events.get(index)?;
        let behind = events.get(index + 1).map_or(reached + 1, |event| event.seq);
        self.at = Place { index: self.at.index + 1, seq: behind };
        Some((**event).clone())
    }
}

#[cfg(test)]
mod tests;
