//! One tree, as its keeper tells of it, put in order with what init tells of its root.
//!
//! ```text
//!   init:    started ──────────────────────────► exited
//!   keeper:  (waits for "started") ─► told ─► the root's end, for which "exited" waits
//! ```

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashSet};

use agentvm_wire::{
    id::ProcessId,
    observer::{EventCategory, MAX_EVENTS, ObserverBackend, ObserverEvent, ObserverEventKind, ProcessKey},
};

use super::{event_now, sighted};
use crate::keeper::{Key, Subject, Wanted, What};

/// A tree that a keeper watches.
#[derive(Debug)]
pub(super) struct Watch {
    process: ProcessId,
    backend: ObserverBackend,
    root: Option<Key>,
    members: BTreeMap<Key, Member>,
    /// How many members there were.
    joined: u64,
    /// What is seen of it.
    wanted: Wanted,
    /// It ran before, and not all of it is seen yet.
    adopting: bool,
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
    /// Who was told before whom.
    number: u64,
}

#[derive(Debug, Default)]
struct Early {
    events: Vec<ObserverEvent>,
    lost: u64,
}

impl Watch {
    /// Of a process that is about to be started.
    pub(super) fn new(process: ProcessId, wanted: Wanted) -> Self {
        Self {
            process,
            backend: ObserverBackend::Spawn,
            root: None,
            members: BTreeMap::new(),
            joined: 0,
            wanted,
            adopting: false,
            early: Some(Early::default()),
            root_has_ended: false,
            done: false,
        }
    }

    /// Of a process that was started before, of whom the processes alone can be seen.
    pub(super) fn of_running(process: ProcessId) -> Self {
        let wanted = Wanted { process: true, ..Wanted::default() };
        Self { backend: ObserverBackend::Ptrace, adopting: true, early: None, ..Self::new(process, wanted) }
    }

    /// The keeper sees it. A second time it sees another child, because the first was killed before it became anything.
    pub(super) fn watched(&mut self, root: Subject, backend: ObserverBackend) {
        // Init may have told of the start already, since sightings come in batches.
        let early = self.early.as_ref().map(|_| Early::default());
        let adopting = self.adopting;
        *self =
            Self { root: Some(root.key), backend, adopting, early, ..Self::new(self.process, self.wanted) };
        self.members.insert(root.key, Member { key: key(root), parent: None, number: 0 });
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

    /// All of a tree that ran before is seen from here on.
    pub(super) fn settle(&mut self) {
        self.adopting = false;
    }

    pub(super) fn is_adopting(&self) -> bool {
        self.adopting
    }

    /// Whether that is seen of it.
    pub(super) fn sees(&self, wanted: Wanted) -> bool {
        !self.done && self.wanted.covers(wanted)
    }

    /// Nothing of the tree is left, or it is not seen.
    pub(super) fn finish(&mut self) {
        self.done = true;
        self.settle();
        self.members.clear();
    }

    /// Whether nothing more will be told of the root.
    pub(super) fn root_has_ended(&self) -> bool {
        self.root_has_ended || self.done
    }

    pub(super) fn is_done(&self) -> bool {
        self.done
    }

    pub(super) fn root_key(&self) -> Option<ProcessKey> {
        self.members.get(&self.root?)?.key
    }

    /// The descendants that are left, as events that tell so.
    pub(super) fn orphans(&self) -> Vec<ObserverEvent> {
        self.of_descendants(&ObserverEventKind::Orphaned)
    }

    /// The same, for somebody who knows none of them, nor of parents that have ended.
    pub(super) fn adopted(&self) -> Vec<ObserverEvent> {
        let left: HashSet<ProcessKey> = self.members.values().filter_map(|member| member.key).collect();
        let mut events = self.of_descendants(&ObserverEventKind::DescendantStarted { adopted: true });
        for event in &mut events {
            event.parent_key = event.parent_key.filter(|parent| left.contains(parent));
        }
        events
    }

    /// Parents come first.
    fn of_descendants(&self, kind: &ObserverEventKind) -> Vec<ObserverEvent> {
        let left = self.members.iter().filter(|(key, _)| Some(**key) != self.root);
        let mut left: Vec<Member> = left.map(|(_, member)| *member).collect();
        left.sort_unstable_by_key(|member| member.number);
        let event = |member: Member| {
            let mut event = event_now(EventCategory::Process, kind.clone());
            (event.pid, event.key, event.parent_key) =
                (member.key.map(|key| key.pid), member.key, member.parent);
            event.backend = self.backend;
            event
        };
        left.into_iter().map(event).collect()
    }

    fn event(&mut self, who: Subject, at_ns: u64, what: What) -> Option<ObserverEvent> {
        let is_root = Some(who.key) == self.root;
        let parent = match what {
            What::Forked { parent } => Some(parent),
            What::Adopted { parent } => parent,
            _ => None,
        };
        let parent = parent.and_then(|parent| self.members.get(&parent)).and_then(|parent| parent.key);
        self.joined += 1;
        let number = self.joined;
        let member = *self.members.entry(who.key).or_insert(Member { key: key(who), parent, number });
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
