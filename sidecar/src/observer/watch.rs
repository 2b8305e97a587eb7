//! One tree, as its keeper tells of it, put in order with what init tells of its root.
//!
//! ```text
//!   init:    started ──────────────────────────► exited
//!   keeper:  (waits for "started") ─► told ─► the root's end, for which "exited" waits
//! ```

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use agentvm_wire::{
    id::ProcessId,
    observer::{EventCategory, MAX_EVENTS, ObserverBackend, ObserverEvent, ObserverEventKind, ProcessKey},
};

use super::{event_now, sighted};
use crate::keeper::{Key, Subject, What};

/// A tree that a keeper watches.
#[derive(Debug)]
pub(super) struct Watch {
    process: ProcessId,
    backend: ObserverBackend,
    root: Option<Key>,
    members: BTreeMap<Key, Member>,
    /// What came before init told of the start.
    early: Option<Early>,
    /// Nothing will be told of the root any more.
    root_has_ended: bool,
    /// Nothing will be told of anybody any more.
    done: bool,
}

#[derive(Debug, Clone, Copy)]
struct Member {
    /// Unknown where its pid is.
    key: Option<ProcessKey>,
    parent: Option<ProcessKey>,
}

#[derive(Debug, Default)]
struct Early {
    events: Vec<ObserverEvent>,
    lost: u64,
}

impl Watch {
    /// Of a process that is about to be started.
    pub(super) fn new(process: ProcessId) -> Self {
        Self {
            process,
            backend: ObserverBackend::Spawn,
            root: None,
            members: BTreeMap::new(),
            early: Some(Early::default()),
            root_has_ended: false,
            done: false,
        }
    }

    /// The keeper sees it. A second time it sees another child, because the first was killed before it became anything.
    pub(super) fn watched(&mut self, root: Subject, backend: ObserverBackend) {
        // Init may have told of the start already, since sightings come in batches.
        let early = self.early.as_ref().map(|_| Early::default());
        *self = Self { root: Some(root.key), backend, early, ..Self::new(self.process) };
        self.members.insert(root.key, Member { key: key(root), parent: None });
    }

    /// Something was seen; returns what can be told now.
    pub(super) fn saw(&mut self, who: Subject, at_ns: u64, what: What) -> Option<ObserverEvent> {
        let event = self.event(who, at_ns, what)?;
        match &mut self.early {
            None => Some(event),
            Some(early) => {
                if early.events.len() < MAX_EVENTS {
                    early.events.push(event);
                } else {
                    early.lost += 1;
                }
                None
            }
        }
    }

    /// Init has told of the start; returns what can be told behind it.
    pub(super) fn started(&mut self) -> Vec<ObserverEvent> {
        let Early { mut events, lost } = self.early.take().unwrap_or_default();
        if lost > 0 {
            let reason = ObserverEventKind::UNSENT.to_owned();
            events.push(event_now(EventCategory::Process, ObserverEventKind::Loss { reason, count: lost }));
        }
        events
    }

    /// Nothing of the tree is left, or it is not seen.
    pub(super) fn finish(&mut self) {
        self.done = true;
        self.members.clear();
    }

    /// Whether nothing more will be told of the root.
    pub(super) fn root_has_ended(&self) -> bool {
        self.root_has_ended || self.done
    }

    pub(super) fn is_done(&self) -> bool {
        self.done
    }

    /// The descendants that are left, as events that tell so.
    pub(super) fn orphans(&self) -> Vec<ObserverEvent> {
        let left = self.members.iter().filter(|(key, _)| Some(**key) != self.root);
        left.map(|(_, member)| {
            let mut event = event_now(EventCategory::Process, ObserverEventKind::Orphaned);
            (event.pid, event.key, event.parent_key) =
                (member.key.map(|key| key.pid), member.key, member.parent);
            event.backend = self.backend;
            event
        })
        .collect()
    }

    fn event(&mut self, who: Subject, at_ns: u64, what: What) -> Option<ObserverEvent> {
        let is_root = Some(who.key) == self.root;
        let parent = match what {
            What::Forked { parent } => Some(parent),
            What::Adopted { parent } => parent,
            _ => None,
        };
        let parent = parent.and_then(|parent| self.members.get(&parent)).and_then(|parent| parent.key);
        let member = *self.members.entry(who.key).or_insert(Member { key: key(who), parent });
        if let What::Exited { .. } = what {
            self.members.remove(&who.key);
            if is_root {
                self.root_has_ended = true;
                return None;
            }
        }
        let mut event = sighted::event(what, at_ns, self.backend);
        event.pid = if is_root { Some(self.process.0) } else { who.pid };
        (event.key, event.parent_key) = (member.key, member.parent);
        Some(event)
    }
}

fn key(who: Subject) -> Option<ProcessKey> {
    Some(ProcessKey { pid: who.pid?, start_ticks: who.key.start_ticks })
}
