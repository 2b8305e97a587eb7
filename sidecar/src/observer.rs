//! What the processes of a VM do, told to those who asked.
//!
//! ```text
//!   init's events ─► Observers ─► Feed, one for each observation: chooses, numbers, keeps ─► its stream
//! ```
//!
//! A VM that nobody observes has none of this. No process ever waits for a reader: what waits too long is lost, and
//! counted.

pub(crate) mod capabilities;
mod feed;
mod waiting;

use std::{collections::HashMap, sync::Arc};

use agentvm_wire::{
    error::{Code, Rejection},
    id::{ProcessId, StreamId},
    observer::{EventCategory, ObserverEvent, ObserverEventKind as Kind, Told},
};

pub(crate) use feed::Feed;
use waiting::Waiting;

use crate::{
    init::{Exit, now_ms, now_ns},
    link::Link,
    process::Process,
};

/// The limit on observations of a whole VM, by its name.
const MAX_OBSERVERS: &str = "max_observers";

/// Who observes one VM.
#[derive(Debug, Default)]
pub(crate) struct Observers {
    waiting: Arc<Waiting>,
    whole: Vec<Arc<Feed>>,
    trees: HashMap<ProcessId, Arc<Feed>>,
}

impl Observers {
    /// Observes one process.
    pub(crate) fn add_tree(
        &mut self,
        process: ProcessId,
        stream: StreamId,
        categories: Vec<EventCategory>,
    ) -> Arc<Feed> {
        let feed = Feed::new(stream, categories, self.waiting.clone());
        self.trees.insert(process, feed.clone());
        feed
    }

    /// Observes all of them.
    pub(crate) fn add_whole(&mut self, stream: StreamId, categories: Vec<EventCategory>) -> Arc<Feed> {
        let feed = Feed::new(stream, categories, self.waiting.clone());
        self.whole.push(feed.clone());
        feed
    }

    /// Refuses one more observation of the whole VM than there may be.
    pub(crate) fn admit(&mut self, limit: u64) -> Result<(), Rejection> {
        self.forget_closed();
        let observed = self.whole.len() as u64;
        if observed >= limit {
            let code = Code::RESOURCE_EXHAUSTED;
            return Err(Rejection::limit(code, MAX_OBSERVERS, "observers", limit, observed));
        }
        Ok(())
    }

    /// Whether nobody observes any more.
    pub(crate) fn is_empty(&mut self) -> bool {
        self.forget_closed();
        self.whole.is_empty() && self.trees.is_empty()
    }

    /// A process has executed its program.
    pub(crate) fn started(&self, link: &Link, process: &Process) {
        self.tell(link, process.id, &Arc::new(start_of(process, false)));
    }

    /// A process has ended; returns where that is told.
    pub(crate) fn exited(&mut self, link: &Link, process: &Process, exit: &Exit) -> Vec<Told> {
        let kind = Kind::Exited { exit_code: exit.exit_code, signal: exit.signal };
        let told = self.tell(link, process.id, &Arc::new(event_of(process, kind, exit.exited_at_ms)));
        if let Some(feed) = self.trees.remove(&process.id) {
            feed.complete(link, Some(process));
        }
        told
    }

    /// A process did not start.
    pub(crate) fn failed(&mut self, process: ProcessId) {
        self.trees.remove(&process);
    }

    /// The VM has ended.
    pub(crate) fn complete(&mut self, link: &Link) {
        let trees = std::mem::take(&mut self.trees).into_values();
        for feed in std::mem::take(&mut self.whole).into_iter().chain(trees) {
            feed.complete(link, None);
        }
    }

    fn tell(&self, link: &Link, tree: ProcessId, event: &Arc<ObserverEvent>) -> Vec<Told> {
        let feeds = self.whole.iter().chain(self.trees.get(&tree));
        feeds.filter_map(|feed| feed.tell(link, event)).collect()
    }

    fn forget_closed(&mut self) {
        self.whole.retain(|feed| feed.is_open());
        self.trees.retain(|_, feed| feed.is_open());
    }
}

/// The start of a process, which may lie behind.
pub(crate) fn start_of(process: &Process, adopted: bool) -> ObserverEvent {
    event_of(process, Kind::Started { adopted }, process.started().started_at_ms)
}

fn event_of(process: &Process, kind: Kind, timestamp_ms: u64) -> ObserverEvent {
    let mut event = ObserverEvent::new(EventCategory::Lifecycle, kind);
    (event.pid, event.key) = (Some(process.id.0), process.key());
    (event.timestamp_ms, event.mono_ns) = (timestamp_ms, now_ns());
    event
}

/// An event that happens now.
fn event_now(category: EventCategory, kind: Kind) -> ObserverEvent {
    let mut event = ObserverEvent::new(category, kind);
    (event.timestamp_ms, event.mono_ns) = (now_ms(), now_ns());
    event
}
