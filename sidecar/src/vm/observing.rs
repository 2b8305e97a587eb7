//! Observations of a VM and of its processes.

use std::sync::Arc;

use agentvm_wire::{
    error::Rejection,
    id::{ProcessId, RequestId},
    message::Response,
    observer::{Observe, ObserveVm, Observing},
};

use super::{State, Vm};
use crate::observer::{Feed, capabilities, start_of};

impl Vm {
    /// Observes the VM from now on; what runs already is told first.
    pub(crate) fn observe(
        self: &Arc<Self>,
        request: RequestId,
        ObserveVm { observe, window_bytes }: ObserveVm,
    ) -> Result<(), Rejection> {
        capabilities::check(&observe)?;
        let mut guard = self.lock();
        let state = &mut *guard;
        if state.gone || state.grace_ends.is_some() {
            return Err(Rejection::vm_not_found());
        }
        let observers = state.observers.get_or_insert_default();
        observers.admit(self.link.limits().max_observers)?;
        self.link.open_streams(vec![observe.stream], window_bytes)?;
        let feed = observers.add_whole(observe.stream, observe.categories);
        self.send(&feed, window_bytes);
        let mut running: Vec<_> = state.processes.values().filter(|process| process.is_running()).collect();
        running.sort_unstable_by_key(|process| process.id);
        for process in running {
            feed.tell(&self.link, &Arc::new(start_of(process, true)));
        }
        drop(guard);
        self.link.respond(request, &Response::Observing(Observing {}));
        Ok(())
    }

    /// Observes a process that is about to be started, whose streams are open.
    pub(super) fn observe_tree(
        self: &Arc<Self>,
        state: &mut State,
        process: ProcessId,
        observe: Observe,
        window: Option<u64>,
    ) {
        let observers = state.observers.get_or_insert_default();
        let feed = observers.add_tree(process, observe.stream, observe.categories);
        self.send(&feed, window);
    }

    /// Whether somebody will be told of a process that starts now.
    pub(super) fn is_observed(state: &mut State) -> bool {
        // Whoever observed before may have gone.
        state.observers.take_if(|observers| observers.is_empty());
        state.observers.is_some()
    }

    fn send(&self, feed: &Arc<Feed>, window: Option<u64>) {
        self.link.add_source(feed.stream(), feed.clone(), self.id, window);
        self.add(Box::pin(feed.clone().sent()));
    }
}
