//! What keepers tell, on its way to those who observe.

use agentvm_wire::{id::ProcessId, observer::ObserverEventKind};

use super::{KEEPER_GONE, KeeperId, Observers, sighted};
use crate::{
    keeper::{Loss, Sighting},
    link::Link,
};

impl Observers {
    /// Takes what a keeper saw; returns the processes of which it will tell nothing more.
    pub(crate) fn sighted(&mut self, link: &Link, sightings: Vec<Sighting>) -> Vec<ProcessId> {
        sightings.into_iter().filter_map(|sighting| self.take(link, sighting)).collect()
    }

    fn take(&mut self, link: &Link, sighting: Sighting) -> Option<ProcessId> {
        let (process, over) = match sighting {
            Sighting::Watched { tree, root, backend, .. } => {
                self.watch(tree)?.watched(root, sighted::backend(backend));
                (tree, false)
            }
            Sighting::Saw { tree: Some(tree), who, at_ns, what } => {
                let watch = self.watch(tree)?;
                let event = watch.saw(who, at_ns, what);
                let over = watch.root_has_ended();
                if let Some(event) = event {
                    self.tell(link, tree, event);
                }
                (tree, over)
            }
            Sighting::Adopted { tree } => {
                self.watch(tree)?.settle();
                return None;
            }
            Sighting::Unwatched { tree, loss, errno } => {
                self.watch(tree)?.finish();
                self.lose(link, tree, loss.name(), Some(errno));
                (tree, true)
            }
            Sighting::Done { tree } => {
                self.watch(tree)?.finish();
                (tree, true)
            }
            Sighting::Lost { tree, loss, count } => {
                let told = tree.map_or_else(|| self.all(), |tree| self.audience(tree).cloned().collect());
                for feed in told {
                    feed.lose(link, reason(loss), count, None);
                }
                return None;
            }
            Sighting::Saw { tree: None, .. } => return None,
        };
        self.complete_tree(link, process);
        over.then_some(process)
    }

    /// A keeper is gone: what it watched goes on unwatched. Returns the processes that this concerns.
    pub(crate) fn keeper_gone(&mut self, link: &Link, gone: KeeperId) -> Vec<ProcessId> {
        self.keepers.remove(gone);
        let mut watched = Vec::new();
        for (process, tree) in &mut self.trees {
            if let Some((_, watch)) =
                tree.watch.as_mut().filter(|(keeper, watch)| *keeper == gone && !watch.is_done())
            {
                watch.finish();
                watched.push(*process);
            }
        }
        if !watched.is_empty() {
            self.all_of_it().for_each(|feed| feed.lose(link, KEEPER_GONE, 0, None));
        }
        for process in &watched {
            if let Some(feed) = self.trees.get(process).and_then(|tree| tree.own.as_ref()) {
                feed.lose(link, KEEPER_GONE, 0, None);
            }
            self.complete_tree(link, *process);
        }
        watched
    }

    fn watch(&mut self, tree: ProcessId) -> Option<&mut super::Watch> {
        self.trees.get_mut(&tree)?.watch.as_mut().map(|(_, watch)| watch)
    }

    fn all(&self) -> Vec<std::sync::Arc<super::Feed>> {
        let own = self.trees.values().filter_map(|tree| tree.own.as_ref());
        self.all_of_it().chain(own).cloned().collect()
    }
}

/// An overflow of the keeper is not one of the stream, behind which numbers are left out.
fn reason(loss: Loss) -> &'static str {
    match loss {
        Loss::Overflow => ObserverEventKind::UNSENT,
        loss => loss.name(),
    }
}
