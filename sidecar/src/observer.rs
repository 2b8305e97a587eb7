//! What the processes of a VM do, told to those who asked.
//!
//! ```text
//!   init's events ──────────► Observers ─► Feed, one for each observation: chooses, numbers, keeps ─► its stream
//!   a keeper's sightings ─► Watch, one for each tree: puts the two in order ──┘
//! ```
//!
//! A VM that nobody observes has none of this, and no keeper runs unless more than `lifecycle` is asked for. No process
//! ever waits for a reader: what waits too long is lost, and counted.

mod adoption;
pub(crate) mod capabilities;
mod feed;
pub(crate) mod host;
mod keepers;
mod probe;
mod sighted;
mod sightings;
mod waiting;
mod watch;

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use agentvm_wire::{
    error::{Code, Rejection},
    id::ProcessId,
    observer::{EventCategory, Observe, ObserverEvent, ObserverEventKind as Kind, Told},
};

pub(crate) use feed::Feed;
pub(crate) use keepers::{Expected, KeeperId};
use keepers::{Keepers, wanted};
use waiting::Waiting;
use watch::Watch;

use crate::{
    init::{Exit, now_ms, now_ns},
    keeper::{Loss, Orders, Wanted},
    link::Link,
    process::Process,
};

/// Why something is not told any more.
const KEEPER_GONE: &str = "keeper_gone";
/// The limit on observations of a whole VM, by its name.
const MAX_OBSERVERS: &str = "max_observers";

/// Who observes one VM, and what is seen for them.
#[derive(Debug, Default)]
pub(crate) struct Observers {
    waiting: Arc<Waiting>,
    whole: Vec<Arc<Feed>>,
    newcomers: Vec<Newcomer>,
    /// Who observes the host through this VM.
    host: Vec<Arc<Feed>>,
    trees: HashMap<ProcessId, Tree>,
    keepers: Keepers,
}

/// Who will observe the whole VM once what runs already is seen.
#[derive(Debug)]
struct Newcomer {
    feed: Arc<Feed>,
    /// What was started since; of that it is told already.
    fresh: HashSet<ProcessId>,
}

/// A process that is observed, with its descendants.
#[derive(Debug, Default)]
struct Tree {
    /// Who observes it alone.
    own: Option<Arc<Feed>>,
    watch: Option<(KeeperId, Watch)>,
    /// Its end was told.
    exited: bool,
}

impl Observers {
    /// Observes one process.
    pub(crate) fn add_tree(&mut self, process: ProcessId, observe: Observe) -> Arc<Feed> {
        let feed = Feed::new(observe, self.waiting.clone());
        self.trees.insert(process, Tree { own: Some(feed.clone()), ..Tree::default() });
        feed
    }

    /// Observes all of them, from [`Self::begin`] on.
    pub(crate) fn add_whole(&mut self, observe: Observe) -> Arc<Feed> {
        let feed = Feed::new(observe, self.waiting.clone());
        self.newcomers.push(Newcomer { feed: feed.clone(), fresh: HashSet::new() });
        feed
    }

    /// Observes the host, as long as the VM lives.
    pub(crate) fn add_host(&mut self, observe: Observe) -> Arc<Feed> {
        let feed = Feed::new(observe, self.waiting.clone());
        self.host.push(feed.clone());
        feed
    }

    /// Whether somebody is told of a process, or will be.
    pub(crate) fn observes(&self, process: ProcessId) -> bool {
        !self.newcomers.is_empty() || self.feeds(process).next().is_some()
    }

    /// Refuses one more observation by `observe` than there may be.
    pub(crate) fn admit(&mut self, limit: u64) -> Result<(), Rejection> {
        let observed = self.observed() as u64;
        if observed >= limit {
            let code = Code::RESOURCE_EXHAUSTED;
            return Err(Rejection::limit(code, MAX_OBSERVERS, "observers", limit, observed));
        }
        Ok(())
    }

    /// Whether nobody observes any more.
    pub(crate) fn is_empty(&mut self) -> bool {
        let nobody = self.observed() == 0;
        let of_trees = !self.whole.is_empty() || !self.newcomers.is_empty();
        self.trees.retain(|_, tree| of_trees || tree.own.as_ref().is_some_and(|feed| feed.is_open()));
        nobody && self.trees.is_empty()
    }

    /// How many observe the whole VM, or through it the host.
    fn observed(&mut self) -> usize {
        self.whole.retain(|feed| feed.is_open());
        self.newcomers.retain(|newcomer| newcomer.feed.is_open());
        self.host.retain(|feed| feed.is_open());
        self.whole.len() + self.newcomers.len() + self.host.len()
    }

    /// Has a process that is about to be started watched, if that takes a keeper.
    pub(crate) fn expect(&mut self, link: &Link, process: ProcessId) -> Option<Expected> {
        for newcomer in &mut self.newcomers {
            newcomer.fresh.insert(process);
        }
        let orders = orders(self.feeds(process))?;
        let wanted = orders.wanted;
        match self.keepers.expect(process, orders) {
            Ok(expected) => {
                let tree = self.trees.entry(process).or_default();
                tree.watch = Some((expected.keeper, Watch::new(process, wanted)));
                Some(expected)
            }
            Err(error) => {
                self.lose(link, process, Loss::NoBackend.name(), error.raw_os_error());
                None
            }
        }
    }

    /// A process has executed its program.
    pub(crate) fn started(&mut self, link: &Link, process: &Process) {
        let events = self.trees.get_mut(&process.id).and_then(|tree| tree.watch.as_mut());
        let behind = events.map_or_else(Vec::new, |(_, watch)| watch.started());
        self.tell(link, process.id, start_of(process, false));
        for event in behind {
            self.tell(link, process.id, event);
        }
    }

    /// Whether the keeper has still to tell of a process's end.
    pub(crate) fn awaits_end(&self, process: ProcessId) -> bool {
        let watch = self.trees.get(&process).and_then(|tree| tree.watch.as_ref());
        watch.is_some_and(|(_, watch)| !watch.root_has_ended())
    }

    /// A process has ended; returns where that is told.
    pub(crate) fn exited(&mut self, link: &Link, process: &Process, exit: &Exit) -> Vec<Told> {
        let kind = Kind::Exited { exit_code: exit.exit_code, signal: exit.signal };
        self.tell(link, process.id, event_of(process, kind, exit.exited_at_ms));
        let told = self.feeds(process.id).filter_map(|feed| feed.told()).collect();
        let watch = self.trees.get(&process.id).and_then(|tree| tree.watch.as_ref());
        let orphans = watch.map_or_else(Vec::new, |(_, watch)| watch.orphans());
        for event in orphans {
            self.tell(link, process.id, event);
        }
        if let Some(tree) = self.trees.get_mut(&process.id) {
            tree.exited = true;
        }
        self.complete_tree(link, process.id);
        told
    }

    /// A process did not start.
    pub(crate) fn failed(&mut self, process: ProcessId) {
        self.trees.remove(&process);
    }

    /// The VM has ended.
    pub(crate) fn complete(&mut self, link: &Link) {
        let own =
            std::mem::take(&mut self.trees).into_iter().filter_map(|(id, tree)| Some((Some(id), tree.own?)));
        let newcomers = std::mem::take(&mut self.newcomers).into_iter().map(|newcomer| newcomer.feed);
        let host = std::mem::take(&mut self.host);
        let whole = std::mem::take(&mut self.whole).into_iter().chain(newcomers).chain(host);
        for (process, feed) in whole.map(|feed| (None, feed)).chain(own) {
            feed.complete(link, process);
        }
    }

    /// Ends what observes one process, once that has ended and nothing will be told of its descendants.
    fn complete_tree(&mut self, link: &Link, process: ProcessId) {
        let over =
            |tree: &mut Tree| tree.exited && tree.watch.as_ref().is_none_or(|(_, watch)| watch.is_done());
        let is_over = self.trees.get_mut(&process).is_some_and(over);
        let tree = is_over.then(|| self.trees.remove(&process)).flatten();
        if let Some(feed) = tree.and_then(|tree| tree.own) {
            feed.complete(link, Some(process));
        }
    }

    /// Who is told of a process.
    fn feeds(&self, process: ProcessId) -> impl Iterator<Item = &Arc<Feed>> + Clone {
        let newcomers = self.newcomers.iter().filter(move |newcomer| newcomer.fresh.contains(&process));
        let own = self.trees.get(&process).and_then(|tree| tree.own.as_ref());
        self.whole.iter().chain(newcomers.map(|newcomer| &newcomer.feed)).chain(own)
    }

    /// Who has to know what is missing of a process.
    fn audience(&self, process: ProcessId) -> impl Iterator<Item = &Arc<Feed>> {
        self.all_of_it().chain(self.trees.get(&process).and_then(|tree| tree.own.as_ref()))
    }

    /// Who observes the whole VM, or will.
    fn all_of_it(&self) -> impl Iterator<Item = &Arc<Feed>> + Clone {
        self.whole.iter().chain(self.newcomers.iter().map(|newcomer| &newcomer.feed))
    }

    fn tell(&self, link: &Link, process: ProcessId, event: ObserverEvent) {
        let event = Arc::new(event);
        self.feeds(process).for_each(|feed| feed.tell(link, &event));
    }

    /// A process is not watched.
    fn lose(&self, link: &Link, process: ProcessId, reason: &str, errno: Option<i32>) {
        self.audience(process).for_each(|feed| feed.lose(link, reason, 0, errno));
    }
}

/// What a keeper has to see for these, if it takes one.
fn orders<'a>(feeds: impl Iterator<Item = &'a Arc<Feed>> + Clone) -> Option<Orders> {
    let feeds = feeds.filter(|feed| feed.is_open());
    let seen = |category: &EventCategory| capabilities::is_available(*category);
    let wanted = wanted(feeds.clone().flat_map(|feed| feed.categories()).copied().filter(seen));
    let require_exact = feeds.clone().any(|feed| feed.requires_exact());
    let (ladder, records) = (capabilities::ladder(), capabilities::has_records());
    (wanted != Wanted::default()).then_some(Orders { wanted, ladder, require_exact, records })
}

/// The start of a process, which may lie behind.
fn start_of(process: &Process, adopted: bool) -> ObserverEvent {
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
