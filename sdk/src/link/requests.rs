//! What is asked of the sidecar, and who gets the answer.

use std::sync::Arc;

use agentvm_wire::{
    id::VmId,
    message::{Request, Response, Scope},
    observer::{Observe, ObserveVm},
    process::{Execute, Signal, SignalProcess, SignalTarget, StdioStreams},
    vm::{DisposeVm, VmConfig},
};
use tokio::sync::oneshot;

use super::{Core, Link, Route, Waiter};
use crate::{
    config::ProcessLimits,
    error::ClientError,
    observer::{Observation, ObserverConfig},
    process::entry::Entry,
    stdio::OutputStream,
    vm::OwnedVm,
};

/// Which streams a process shall have.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WantedStreams {
    pub(crate) stdin: bool,
    pub(crate) stdout: bool,
    pub(crate) stderr: bool,
    /// If it is observed: how many events are kept.
    pub(crate) events: usize,
}

type Answer = Result<Response, ClientError>;

impl Link {
    /// Sends a request and awaits its answer. Dropping the future forgets the answer, not the request.
    pub(crate) async fn call(&self, scope: Scope, request: &Request) -> Result<Response, ClientError> {
        let (sender, receiver) = oneshot::channel();
        self.post(scope, request, Waiter::Call(sender))?;
        match self.answer(receiver).await? {
            Response::Rejected(rejection) => Err(ClientError::Rejected(rejection)),
            answer => Ok(answer),
        }
    }

    /// Has a VM built. Dropping the future disposes of it.
    pub(crate) async fn create_vm(
        &self,
        config: VmConfig,
        limits: ProcessLimits,
    ) -> Result<OwnedVm, ClientError> {
        let (sender, receiver) = oneshot::channel();
        self.post(Scope::SESSION, &Request::CreateVm(config), Waiter::Create(limits, sender))?;
        self.answer(receiver).await
    }

    pub(crate) async fn answer<T>(
        &self,
        receiver: oneshot::Receiver<Result<T, ClientError>>,
    ) -> Result<T, ClientError> {
        receiver.await.unwrap_or_else(|_| Err(self.ended().unwrap_or(ClientError::Disposed)))
    }

    fn post(&self, scope: Scope, request: &Request, waiter: Waiter) -> Result<(), ClientError> {
        let mut core = self.lock();
        core.check_alive()?;
        let id = core.connection.request(scope, request).map_err(ClientError::Rejected)?;
        core.waiters.insert(id, waiter);
        drop(core);
        self.send();
        Ok(())
    }

    /// Sends a request now, or as soon as few enough others wait for their answer.
    fn post_surely(&self, scope: Scope, request: Request, waiter: Waiter) -> Result<(), ClientError> {
        let mut core = self.lock();
        core.check_alive()?;
        core.deferred.push_back((scope, request, waiter));
        core.post_deferred();
        drop(core);
        self.wake.notify_one();
        Ok(())
    }

    /// Disposes of a VM and awaits the answer. The VM ends even if the future is dropped.
    pub(crate) async fn dispose_vm(&self, vm: VmId, grace_ms: u64) -> Result<Response, ClientError> {
        let (sender, receiver) = oneshot::channel();
        let request = Request::DisposeVm(DisposeVm { grace_ms });
        self.post_surely(Scope::vm(vm), request, Waiter::Call(sender))?;
        self.answer(receiver).await
    }

    /// Disposes of a VM without waiting for it: its handle is gone.
    pub(crate) fn abandon_vm(&self, vm: VmId) {
        // A link that is dead has no VM any more.
        let _ =
            self.post_surely(Scope::vm(vm), Request::DisposeVm(DisposeVm { grace_ms: 0 }), Waiter::Nobody);
    }

    /// Chooses stream ids, makes the entry with them, and sends `execute`, all in one step, so that whatever the
    /// caller does next with the process follows it.
    pub(crate) fn execute<T>(
        self: &Arc<Self>,
        vm: VmId,
        mut execute: Execute,
        wants: WantedStreams,
        enter: impl FnOnce(StdioStreams, Option<Arc<Observation>>) -> (Arc<Entry>, T),
    ) -> Result<(Arc<Entry>, T), ClientError> {
        let mut guard = self.lock();
        let core = &mut *guard;
        core.check_alive()?;
        let mut open = |wanted: bool| wanted.then(|| core.connection.next_stream());
        let streams =
            StdioStreams { stdin: open(wants.stdin), stdout: open(wants.stdout), stderr: open(wants.stderr) };
        execute.streams = streams;
        let observation = execute.observe.as_mut().map(|observe| {
            observe.stream = core.connection.next_stream();
            Observation::new(observe.stream, vm, self.clone(), wants.events)
        });
        let window = core.connection.choose_window(execute.stream_ids().count());
        execute.window_bytes = window;
        let id = core
            .connection
            .request(Scope::vm(vm), &Request::Execute(execute))
            .map_err(ClientError::Rejected)?;
        if let Some(observation) = &observation {
            core.receive_events(observation, window);
        }
        let (entry, subscribed) = enter(streams, observation);
        if let Some(stream) = streams.stdin {
            core.connection.open_send(stream, vm, window);
            core.routes.insert(stream, Route::Stdin(entry.clone()));
        }
        for (stream, which) in
            [(streams.stdout, OutputStream::Stdout), (streams.stderr, OutputStream::Stderr)]
        {
            if let Some(stream) = stream {
                core.connection.open_receive(stream, window);
                core.routes.insert(stream, Route::Output(entry.clone(), which));
            }
        }
        core.waiters.insert(id, Waiter::Start(entry.clone()));
        drop(guard);
        self.send();
        Ok((entry, subscribed))
    }

    /// Has a VM observed; the answer is still to come. What is executed next is observed.
    pub(crate) fn observe(
        self: &Arc<Self>,
        vm: VmId,
        config: &ObserverConfig,
    ) -> Result<(Arc<Observation>, oneshot::Receiver<Answer>), ClientError> {
        let (sender, receiver) = oneshot::channel();
        let mut observe = Observe::from(config);
        observe.validate().map_err(ClientError::Rejected)?;
        let mut core = self.lock();
        core.check_alive()?;
        observe.stream = core.connection.next_stream();
        let observation = Observation::new(observe.stream, vm, self.clone(), config.buffered_events);
        let window_bytes = core.connection.choose_window(1);
        let request = Request::Observe(ObserveVm { observe, reach: config.scope, window_bytes });
        let id = core.connection.request(Scope::vm(vm), &request).map_err(ClientError::Rejected)?;
        core.receive_events(&observation, window_bytes);
        core.waiters.insert(id, Waiter::Observe(observation.clone(), sender));
        drop(core);
        self.send();
        Ok((observation, receiver))
    }

    /// Sends a signal; the entry has made sure that it is not already on its way.
    pub(crate) fn signal(&self, entry: &Arc<Entry>, signal: Signal, target: SignalTarget) {
        let body = SignalProcess { process: entry.id, signal, target };
        let waiter = Waiter::Signal(entry.clone(), signal, target);
        if self.post_surely(Scope::vm(entry.vm), Request::SignalProcess(body), waiter).is_err() {
            entry.signal_answered(signal, target);
        }
    }
}

impl Core {
    fn check_alive(&self) -> Result<(), ClientError> {
        match &self.ended {
            Some(cause) => Err(cause.clone()),
            None if self.closing => Err(ClientError::Disposed),
            None => Ok(()),
        }
    }

    fn receive_events(&mut self, observation: &Arc<Observation>, window: Option<u64>) {
        self.connection.open_receive(observation.stream, window);
        self.routes.insert(observation.stream, Route::Events(observation.clone()));
    }

    /// Sends what was deferred as far as there is room for it now.
    pub(super) fn post_deferred(&mut self) {
        while let Some((scope, request, _)) = self.deferred.front()
            && let Ok(id) = self.connection.request(*scope, request)
        {
            let (_, _, waiter) = self.deferred.pop_front().expect("there is a front");
            self.waiters.insert(id, waiter);
        }
    }
}
