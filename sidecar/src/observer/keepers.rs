//! The keepers of one VM: one for each set of orders that its observers need.

use std::{
    io,
    os::fd::OwnedFd,
    sync::atomic::{AtomicU64, Ordering},
};

use agentvm_wire::{id::ProcessId, observer::EventCategory};

use crate::keeper::{Keeper, Orders, Sightings, Wanted};

/// Names a keeper for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KeeperId(u64);

impl KeeperId {
    fn next() -> Self {
        static STARTED: AtomicU64 = AtomicU64::new(0);
        Self(STARTED.fetch_add(1, Ordering::Relaxed))
    }
}

#[derive(Debug, Default)]
pub(super) struct Keepers {
    running: Vec<(KeeperId, Orders, Keeper)>,
}

/// Where a process that is to be watched presents itself.
pub(crate) struct Expected {
    pub(crate) keeper: KeeperId,
    /// For its start.
    pub(crate) watcher: OwnedFd,
    /// Of a keeper that was started for it.
    pub(crate) sightings: Option<Sightings>,
}

impl Keepers {
    /// Has a process watched, by a keeper that is started if there is none with these orders.
    pub(super) fn expect(&mut self, process: ProcessId, orders: Orders) -> io::Result<Expected> {
        let known = self.running.iter().position(|(_, own, _)| *own == orders);
        let mut started = None;
        let index = if let Some(index) = known {
            index
        } else {
            let (keeper, sightings) = Keeper::start(&orders)?;
            started = Some(sightings);
            self.running.push((KeeperId::next(), orders, keeper));
            self.running.len() - 1
        };
        let (id, _, keeper) = &self.running[index];
        let id = *id;
        match keeper.expect(process) {
            Ok(watcher) => Ok(Expected { keeper: id, watcher, sightings: started }),
            // Nobody follows it, if it is new; else who does will know soon.
            Err(error) => {
                self.remove(id);
                Err(error)
            }
        }
    }

    /// It is gone.
    pub(super) fn remove(&mut self, keeper: KeeperId) {
        self.running.retain(|(id, ..)| *id != keeper);
    }
}

/// What a keeper must see for these categories.
pub(super) fn wanted(categories: impl Iterator<Item = EventCategory>) -> Wanted {
    categories.fold(Wanted::default(), |mut wanted, category| {
        match category {
            EventCategory::Process => wanted.process = true,
            EventCategory::File => wanted.file = true,
            EventCategory::Network => wanted.network = true,
            _ => {}
        }
        wanted
    })
}
