//! Output kept of all processes of a VM, and what goes first when it is too much.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use agentvm_wire::resource::{Edge, LimitWarning};

use super::{entry::Entry, registry};
use crate::{resource::VM_RETAINED_OUTPUT_BYTES, vm::Vm};

/// How much the processes of a VM hold, and may.
#[derive(Debug)]
pub(crate) struct Retained {
    bytes: AtomicU64,
    pub(crate) limit: u64,
    edge: Edge,
}

/// They hold so much that something has to be done.
#[derive(Debug)]
pub(crate) struct Pressure {
    warning: Option<LimitWarning>,
    too_much: bool,
}

impl Retained {
    pub(crate) fn new(limit: u64) -> Self {
        Self { bytes: AtomicU64::new(0), limit, edge: Edge::default() }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// One process holds `now` instead of `before`.
    pub(crate) fn change(&self, before: u64, now: u64) -> Option<Pressure> {
        let change = now.wrapping_sub(before);
        let bytes = self.bytes.fetch_add(change, Ordering::Relaxed).wrapping_add(change);
        let warning = self.edge.observe(VM_RETAINED_OUTPUT_BYTES, bytes, self.limit);
        let too_much = now > before && bytes > self.limit;
        (too_much || warning.is_some()).then_some(Pressure { warning, too_much })
    }
}

pub(crate) fn relieve(vm: &Vm, pressure: Pressure) {
    if let Some(warning) = pressure.warning {
        vm.warnings.tell(warning);
    }
    if pressure.too_much {
        free(vm);
    }
}

/// Frees until an eighth of the limit is free again, so that this is rare: first what ended processes hold, oldest
/// first, then what live ones hold beyond an equal share.
fn free(vm: &Vm) {
    let retained = &vm.retained;
    let target = retained.limit - retained.limit / 8;
    let (ended, live): (Vec<Arc<Entry>>, Vec<Arc<Entry>>) =
        registry::spawned(vm).into_iter().partition(|entry| entry.exit.get().is_some());
    let share = target / (2 * live.len() as u64).max(1);
    let victims = ended.iter().map(|entry| (entry, 0)).chain(live.iter().map(|entry| (entry, share)));
    for (entry, share) in victims {
        if retained.bytes() <= target {
            return;
        }
        entry.shrink_outputs(share);
    }
}
