//! Warnings that something is nearly used up: of live processes at once, of all else by a look now and then.
//!
//! A look costs a helper of init, so there is none while nothing runs in the VM, and they are further apart while there
//! is much room.

use std::{collections::HashMap, sync::Arc, time::Duration};

use agentvm_wire::{
    message::Event as WireEvent,
    resource::{Edge, Resource},
};
use tokio::time::sleep;

use super::{MAX_PROCESSES, State, Vm};

/// How long after a first process starts, and from then on where something is at least half used.
const CLOSE: Duration = Duration::from_secs(1);
/// Else.
const FAR: Duration = Duration::from_secs(5);

/// What has been warned of.
#[derive(Debug, Default)]
pub(super) struct Warnings {
    live_processes: Edge,
    others: HashMap<String, Edge>,
    /// Somebody looks.
    watched: bool,
}

impl Vm {
    /// Tells the client when live processes are close to their limit.
    pub(super) fn warn(&self, state: &State) {
        let (live, limit) = (state.processes.len() as u64, self.link.limits().max_processes);
        if let Some(warning) = state.warnings.live_processes.observe(MAX_PROCESSES, live, limit) {
            self.link.event(self.id, &WireEvent::LimitWarning(warning));
        }
    }

    /// Has somebody look at what is used until no process is left.
    pub(super) fn watch(self: &Arc<Self>) {
        if !std::mem::replace(&mut self.lock().warnings.watched, true) {
            let vm = self.clone();
            self.add(Box::pin(async move { vm.look_now_and_then().await }));
        }
    }

    async fn look_now_and_then(&self) {
        let mut pause = CLOSE;
        loop {
            sleep(pause).await;
            // Processes of the guest may have ended the helper; the next one sees more.
            let resources = self.resources().await.unwrap_or_default();
            pause = if resources.iter().any(is_half_used) { CLOSE } else { FAR };
            let mut state = self.lock();
            for resource in resources {
                let Some(limit) = resource.limit.filter(|_| resource.name != MAX_PROCESSES) else { continue };
                let edge = state.warnings.others.entry(resource.name.clone()).or_default();
                if let Some(warning) = edge.observe(&resource.name, resource.used, limit) {
                    self.link.event(self.id, &WireEvent::LimitWarning(warning));
                }
            }
            // Only after a look: what short processes have used up is seen as well.
            if state.processes.is_empty() {
                state.warnings.watched = false;
                return;
            }
        }
    }
}

fn is_half_used(resource: &Resource) -> bool {
    resource.limit.is_some_and(|limit| resource.used >= limit / 2)
}
