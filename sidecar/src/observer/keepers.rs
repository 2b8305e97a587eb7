//! The keepers of one VM: one for each set of orders that its observers need.

use std::{
    io,
    os::fd::OwnedFd,
    sync::atomic::{AtomicU64, Ordering},
};

use agentvm_wire::{id::ProcessId, observer::EventCategory};

use crate::keeper::{Keeper, Orders, Running, Sightings, Wanted};

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
    /// Has a process watched that is about to be started.
    pub(super) fn expect(&mut self, process: ProcessId, orders: Orders) -> io::Result<Expected> {
        let (keeper, watcher, sightings) = self.ask(orders, |keeper| keeper.expect(process))?;
        Ok(Expected { keeper, watcher, sightings })
    }

    /// Has a tree watched that runs already.
    pub(super) fn adopt(
        &mut self,
        process: ProcessId,
        orders: Orders,
        running: Running,
    ) -> io::Result<(KeeperId, Option<Sightings>)> {
        let (keeper, (), sightings) = self.ask(orders, |keeper| keeper.adopt(process, running))?;
        Ok((keeper, sightings))
    }

    /// Asks the keeper with these orders, which is started if there is none.
    fn ask<T>(
        &mut self,
        orders: Orders,
        ask: impl FnOnce(&Keeper) -> io::Result<T>,
    ) -> io::Result<(KeeperId, T, Option<Sightings>)> {
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
        match ask(keeper) {
            Ok(answer) => Ok((id, answer, started)),
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
