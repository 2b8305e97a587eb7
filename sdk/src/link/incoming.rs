//! What arrives, and whom it concerns.

use std::sync::Arc;

use agentvm_wire::{
    connection::{Received, Violation},
    id::{RequestId, StreamId},
    message::{Event, Response, Scope},
    vm::VmState,
};
use bytes::Bytes;

use super::{Link, Route, Waiter};
use crate::{error::ClientError, observer::EntryExit, process::start_failure};

impl Link {
    pub(super) fn receive_text(self: &Arc<Self>, text: &str) -> Result<(), Violation> {
        let received = self.lock().connection.receive_text(text)?;
        match received {
            Received::Response { id, response } => self.answered(id, response),
            Received::Event { scope, event } => self.event(scope, event),
            Received::Reset { stream, .. } => self.reset(stream),
            Received::Stopped { stream, .. } => self.stopped(stream),
            Received::Request { .. }
            | Received::Cancel { .. }
            | Received::Data { .. }
            | Received::Nothing => {}
        }
        // Credit or a closed stream may have made something sendable.
        self.wake.notify_one();
        Ok(())
    }

    pub(super) fn receive_binary(&self, message: Bytes) -> Result<(), Violation> {
        let received = self.lock().connection.receive_binary(message)?;
        match received {
            Received::Data { stream, payload, fin, .. } => self.data(stream, &payload, fin),
            // The core refused the message, which costs the stream.
            Received::Reset { stream, .. } => {
                self.reset(stream);
                self.wake.notify_one();
            }
            _ => {}
        }
        Ok(())
    }

    fn answered(self: &Arc<Self>, id: RequestId, response: Response) {
        let waiter = {
            let mut core = self.lock();
            core.post_deferred();
            core.waiters.remove(&id)
        };
        let Some(waiter) = waiter else { return };
        match (waiter, response) {
            // Whoever dropped the receiver does not want to know.
            (Waiter::Call(sender), response) => drop(sender.send(Ok(response))),
            (Waiter::Observe(observation, sender), response) => {
                if matches!(response, Response::Rejected(_)) {
                    let mut core = self.lock();
                    core.connection.close_stream(observation.stream);
                    core.routes.remove(&observation.stream);
                    drop(core);
                    self.exited(observation.end());
                }
                drop(sender.send(Ok(response)));
            }
            (Waiter::Create(limits, sender), response) => {
                let created = match response {
                    Response::VmCreated(created) => Ok(self.register_vm(created, limits)),
                    Response::Rejected(rejection) => Err(ClientError::Rejected(rejection)),
                    other => Err(ClientError::unexpected("create_vm", &other)),
                };
                // A VM whose `create` was dropped meanwhile belongs to nobody and is disposed of here.
                drop(sender.send(created));
            }
            (Waiter::Start(entry), Response::ProcessStarted(started)) => entry.started(started),
            (Waiter::Start(entry), Response::Rejected(rejection)) => {
                let mut core = self.lock();
                for stream in entry.stream_ids() {
                    core.connection.close_stream(stream);
                    core.routes.remove(&stream);
                }
                let vm = core.vms.get(&entry.vm).and_then(std::sync::Weak::upgrade);
                drop(core);
                // A VM that is about to end starts nothing.
                let ending = vm.and_then(|vm| vm.check_alive().err());
                if let Some(observation) = &entry.observation {
                    self.exited(observation.end());
                }
                entry.start_failed(ending.unwrap_or_else(|| start_failure(&entry.command, rejection)));
            }
            (Waiter::Start(entry), other) => entry.lost(ClientError::unexpected("execute", &other)),
            (Waiter::Signal(entry, signal, target), _) => entry.signal_answered(signal, target),
            (Waiter::Nobody, _) => {}
        }
    }

    /// An event is believed only in the scope of a VM that is ours, and only for a process of that VM.
    fn event(&self, scope: Scope, event: Event) {
        let Some(id) = scope.vm else { return };
        let Some(vm) = self.vm(id) else { return };
        match event {
            Event::ProcessExited(exited) => {
                if let Some(entry) = vm.entry(exited.process) {
                    self.exited([(entry, exited)]);
                }
            }
            Event::OutputDrained(drained) => {
                if let Some(entry) = vm.entry(drained.process) {
                    entry.drained(drained.end);
                }
            }
            Event::VmState(change) if change.state == VmState::Failed => {
                let reason = change.reason.unwrap_or_else(|| "no reason given".to_owned());
                vm.end(&ClientError::VmFailed { reason });
            }
            Event::VmState(change) if change.state == VmState::Disposed => {
                vm.end(&ClientError::Disposed);
            }
            Event::VmState(_) => {}
            Event::LimitWarning(warning) => vm.warnings.tell(warning),
        }
    }

    /// Publishes exits, each behind the events that tell of it.
    pub(crate) fn exited(&self, exits: impl IntoIterator<Item = EntryExit>) {
        for exit in exits {
            if let Some((entry, exited)) = self.behind_its_events(exit) {
                entry.exited(exited);
            }
        }
    }

    /// Gives an exit back unless one of the events that tell of it is still to come; then its observation has it.
    fn behind_its_events(&self, (mut entry, mut exited): EntryExit) -> Option<EntryExit> {
        while let Some(told) = exited.told.pop() {
            let route = self.lock().routes.get(&told.stream).cloned();
            if let Some(Route::Events(observation)) = route {
                (entry, exited) = observation.park(told.seq, (entry, exited))?;
            }
        }
        Some((entry, exited))
    }

    fn data(&self, stream: StreamId, payload: &[u8], fin: bool) {
        let route = {
            let routes = &mut self.lock().routes;
            if fin { routes.remove(&stream) } else { routes.get(&stream).cloned() }
        };
        match route {
            Some(Route::Output(entry, which)) => entry.data(which, payload, fin),
            Some(Route::Events(observation)) => {
                let (received, exits) = observation.data(payload, fin);
                self.consumed(&[(stream, received)]);
                self.exited(exits);
            }
            Some(Route::Stdin(_)) | None => {}
        }
    }

    fn reset(&self, stream: StreamId) {
        let route = self.lock().routes.remove(&stream);
        match route {
            Some(Route::Output(entry, which)) => entry.output_lost(which),
            Some(Route::Stdin(entry)) => entry.stdin_stopped(),
            Some(Route::Events(observation)) => self.exited(observation.end()),
            None => {}
        }
    }

    fn stopped(&self, stream: StreamId) {
        let route = self.lock().routes.remove(&stream);
        if let Some(Route::Stdin(entry)) = route {
            entry.stdin_stopped();
        }
    }
}
