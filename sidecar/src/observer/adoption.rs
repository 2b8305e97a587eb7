//! What ran before a VM is observed: it is taken under watch first, then told as adopted, then the observation begins.
//!
//! ```text
//!   observe ──► newcomer ── every tree is adopted, is over or cannot be taken ──► begins: what runs, and then what happens
//! ```

use std::sync::Arc;

use agentvm_wire::{
    id::ProcessId,
    observer::{EventCategory, Observe, ProcessKey, TraceScope},
};

use super::{
    Feed, KeeperId, Newcomer, Observers, Tree, Watch, capabilities, keepers::wanted, orders, start_of,
};
use crate::{
    keeper::{Running, Sightings, Wanted},
    link::Link,
    process::Process,
};

/// The reason of a loss where keepers see only what starts from now on.
const ALREADY_RUNNING: &str = "already_running";

impl Observers {
    /// Whether what runs already is seen for an observation, as far as it can be.
    pub(crate) fn adopts(observe: &Observe) -> bool {
        observe.categories.contains(&EventCategory::Process) && capabilities::can_adopt()
    }

    /// Has a keeper take a tree that runs already, unless one sees it; what that one sees, if it was started for this.
    pub(crate) fn adopt(
        &mut self,
        process: ProcessId,
        has_ended: bool,
        running: Running,
    ) -> Option<(KeeperId, Sightings)> {
        if self.trees.get(&process).is_some_and(|tree| tree.watch.is_some()) {
            return None;
        }
        let orders = orders(self.all_of_it())?;
        // What cannot be asked for is told as missed when the observation begins.
        let (keeper, sightings) = self.keepers.adopt(process, orders, running).ok()?;
        let tree = self.trees.entry(process).or_insert_with(|| Tree { exited: has_ended, ..Tree::default() });
        tree.watch = Some((keeper, Watch::of_running(process)));
        sightings.map(|sightings| (keeper, sightings))
    }

    /// Whether anybody is still being taken.
    pub(crate) fn is_adopting(&self) -> bool {
        self.trees.values().filter_map(|tree| tree.watch.as_ref()).any(|(_, watch)| watch.is_adopting())
    }

    /// Who a process is, if a keeper knows.
    pub(crate) fn key_of(&self, process: ProcessId) -> Option<ProcessKey> {
        self.trees.get(&process)?.watch.as_ref()?.1.root_key()
    }

    /// Begins to tell an observation what happens, and first what runs already.
    pub(crate) fn begin(&mut self, link: &Link, feed: &Arc<Feed>, running: &[&Process]) {
        let Some(at) = self.newcomers.iter().position(|newcomer| Arc::ptr_eq(&newcomer.feed, feed)) else {
            return;
        };
        let Newcomer { fresh, .. } = self.newcomers.remove(at);
        self.whole.push(feed.clone());
        let running = || running.iter().filter(|process| !fresh.contains(&process.id));
        feed.tell_unavailable(link, TraceScope::default());
        for category in feed.categories() {
            if running().any(|process| !self.sees(process.id, *category)) {
                feed.lose_of(link, *category, ALREADY_RUNNING);
            }
        }
        for process in running() {
            feed.tell(link, &Arc::new(start_of(process, true)));
        }
        let old = self.trees.iter().filter(|(process, _)| !fresh.contains(process));
        let watches = old.filter_map(|(_, tree)| tree.watch.as_ref());
        for event in watches.flat_map(|(_, watch)| watch.adopted()) {
            feed.tell(link, &Arc::new(event));
        }
    }

    /// Whether what a process does is seen, of a category that can be.
    fn sees(&self, process: ProcessId, category: EventCategory) -> bool {
        let wanted = wanted([category].into_iter().filter(|category| capabilities::is_available(*category)));
        let watch = self.trees.get(&process).and_then(|tree| tree.watch.as_ref());
        wanted == Wanted::default() || watch.is_some_and(|(_, watch)| watch.sees(wanted))
    }
}
