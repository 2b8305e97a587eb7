//! One observation: the events that its client asked for, numbered, waiting for their turn on its stream.

#[cfg(test)]
mod tests;

use std::{
    collections::VecDeque,
    io::Read as _,
    sync::{Arc, Mutex, MutexGuard},
};

use agentvm_wire::{
    id::{ProcessId, StreamId},
    observer::{EventCategory, Observe, ObserverEvent, ObserverEventKind as Kind, Told, TraceScope},
};
use tokio::sync::Notify;

use super::{
    capabilities::{is_available_within, takes_keeper},
    event_now,
    host::{self, HostEvents},
    waiting::Waiting,
};
use crate::{
    link::Link,
    stdio::outflow::{Outflow, Taken},
};

/// The reason of a loss where this host lets nobody see a category.
const UNAVAILABLE: &str = "unavailable";
/// The reason of a loss where the kernel stops telling of the host.
const HOST_SILENT: &str = "host_silent";

#[derive(Debug)]
pub(crate) struct Feed {
    stream: StreamId,
    categories: Vec<EventCategory>,
    require_exact: bool,
    queue: Mutex<Queue>,
    closed: Notify,
}

#[derive(Debug)]
struct Queue {
    waiting: Arc<Waiting>,
    events: VecDeque<(u64, Arc<ObserverEvent>)>,
    /// How many events there were, lost ones included.
    seq: u64,
    /// Those before the first that waits which nobody will read: the number of the first, and how many numbers.
    lost: Option<(u64, u64)>,
    /// What is left of a line that did not fit.
    line: VecDeque<u8>,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    /// Nothing is added any more.
    Complete,
    /// Nothing is sent any more.
    Closed,
}

impl Feed {
    pub(super) fn new(observe: Observe, waiting: Arc<Waiting>) -> Arc<Self> {
        let queue = Queue {
            waiting,
            events: VecDeque::new(),
            seq: 0,
            lost: None,
            line: VecDeque::new(),
            state: State::Open,
        };
        Arc::new(Self {
            stream: observe.stream,
            categories: observe.categories,
            require_exact: observe.require_exact,
            queue: Mutex::new(queue),
            closed: Notify::new(),
        })
    }

    pub(crate) fn stream(&self) -> StreamId {
        self.stream
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().expect("no code panics under this lock")
    }

    pub(super) fn is_open(&self) -> bool {
        self.lock().state == State::Open
    }

    pub(super) fn categories(&self) -> &[EventCategory] {
        &self.categories
    }

    pub(super) fn requires_exact(&self) -> bool {
        self.require_exact
    }

    /// Up to where everything is told, if anything is.
    pub(super) fn told(&self) -> Option<Told> {
        let queue = self.lock();
        let tells = queue.state == State::Open && queue.seq > 0;
        tells.then_some(Told { stream: self.stream, seq: queue.seq })
    }

    /// Adds an event, if it was asked for.
    pub(crate) fn tell(&self, link: &Link, event: &Arc<ObserverEvent>) {
        if self.categories.contains(&event.category) {
            self.lock().push(event.clone());
            link.ready(self.stream);
        }
    }

    /// Tells what cannot be seen on this host, within this reach.
    pub(crate) fn tell_unavailable(&self, link: &Link, reach: TraceScope) {
        for category in self.categories.iter().filter(|category| !is_available_within(reach, **category)) {
            self.lose_of(link, *category, UNAVAILABLE);
        }
    }

    /// Something that takes a keeper was not seen.
    pub(crate) fn lose(&self, link: &Link, reason: &str, count: u64, errno: Option<i32>) {
        if let Some(category) = self.categories.iter().find(|category| takes_keeper(**category)) {
            let mut event = event_now(*category, Kind::Loss { reason: reason.to_owned(), count });
            event.errno = errno;
            self.tell(link, &Arc::new(event));
        }
    }

    /// Nobody knows how much of a category is not seen.
    pub(super) fn lose_of(&self, link: &Link, category: EventCategory, reason: &str) {
        let kind = Kind::Loss { reason: reason.to_owned(), count: 0 };
        self.tell(link, &Arc::new(event_now(category, kind)));
    }

    /// Adds the last event: of one process, or of the VM.
    pub(super) fn complete(&self, link: &Link, process: Option<ProcessId>) {
        let mut event = event_now(self.categories[0], Kind::Complete);
        event.pid = process.map(|process| process.0);
        let mut queue = self.lock();
        queue.push(Arc::new(event));
        queue.close(State::Complete);
        drop(queue);
        link.ready(self.stream);
    }

    /// Tells what happens on the host, until the kernel tells no more.
    pub(crate) async fn take_all(&self, link: &Link, host: &mut HostEvents) {
        while let Some(told) = host.next().await {
            match told {
                host::Told::Event(event) => self.tell(link, &event),
                host::Told::Lost(count) => self.lose(link, Kind::UNSENT, count, None),
            }
        }
        self.lose(link, HOST_SILENT, 0, None);
        self.complete(link, None);
    }

    /// Returns once nothing is sent any more.
    pub(crate) async fn sent(self: Arc<Self>) {
        while self.lock().state != State::Closed {
            self.closed.notified().await;
        }
    }

    fn close(&self) {
        self.lock().close(State::Closed);
        self.closed.notify_one();
    }
}

impl Outflow for Feed {
    fn take(&self, buffer: &mut [u8]) -> Taken {
        let mut queue = self.lock();
        match queue.read(self.categories[0], buffer) {
            0 if queue.state == State::Open => Taken::Nothing,
            0 => {
                drop(queue);
                self.close();
                Taken::End
            }
            read => Taken::Bytes(read),
        }
    }

    fn stop(&self) {
        self.close();
    }

    fn end(&self) {
        self.close();
    }
}

impl Queue {
    fn push(&mut self, event: Arc<ObserverEvent>) {
        if self.state != State::Open {
            return;
        }
        let seq = self.seq + 1;
        self.seq += event.numbers();
        while !self.waiting.add(event.size_bytes()) {
            let Some((oldest, lost)) = self.pop() else {
                // Others have taken all the room.
                return self.lose(seq, &event);
            };
            self.lose(oldest, &lost);
        }
        self.events.push_back((seq, event));
    }

    fn pop(&mut self) -> Option<(u64, Arc<ObserverEvent>)> {
        let next = self.events.pop_front()?;
        self.waiting.remove(next.1.size_bytes());
        Some(next)
    }

    fn lose(&mut self, seq: u64, event: &ObserverEvent) {
        self.lost.get_or_insert((seq, 0)).1 += event.numbers();
    }

    /// Writes lines, as far as they fit, and what fits of one more.
    fn read(&mut self, category: EventCategory, mut buffer: &mut [u8]) -> usize {
        let room = buffer.len();
        loop {
            let read = self.line.read(buffer).expect("memory can be read");
            buffer = &mut buffer[read..];
            if buffer.is_empty() {
                return room;
            }
            let Some(event) = self.next(category) else { return room - buffer.len() };
            event.write_line(&mut self.line).expect("memory can be written");
        }
    }

    fn next(&mut self, category: EventCategory) -> Option<ObserverEvent> {
        let (seq, mut event) = match self.lost.take() {
            Some((seq, count)) => {
                (seq, event_now(category, Kind::Loss { reason: Kind::OVERFLOW.to_owned(), count }))
            }
            None => self.pop().map(|(seq, event)| (seq, Arc::unwrap_or_clone(event)))?,
        };
        event.seq = seq;
        Some(event)
    }

    fn close(&mut self, state: State) {
        self.state = state;
        if state == State::Closed {
            while self.pop().is_some() {}
            (self.lost, self.line) = (None, VecDeque::new());
        }
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.close(State::Closed);
    }
}
