//! The link to a sidecar: one connection, shared by every VM and every process of it.
//!
//! Any thread may post to it: it takes the lock, tells the connection core what to send and wakes the driver, which
//! lives on a thread of its own (`driver`). No lock is held across an await, and no queue stands between: what waits
//! to be sent is state (requests are counted, credit and signals coalesced, stdin bounded per process).
//!
//! The first cause of death is kept and given to every later caller.

mod driver;
mod incoming;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, Weak},
};

use agentvm_wire::{
    connection::Connection,
    error::Code,
    id::{RequestId, StreamId, VmId},
    message::{Request, Response, Scope},
    process::{Execute, SignalProcess, SignalTarget, StdioStreams},
    session::Limits,
    stdio::Header,
};
use tokio::sync::{Notify, oneshot};

pub(crate) use driver::{Driver, start};

use crate::{error::ClientError, process::entry::Entry, stdio::OutputStream, vm::Vm};

/// One connection. See the module's notes.
#[derive(Debug)]
pub(crate) struct Link {
    core: Mutex<Core>,
    /// Wakes the writer: one permit, so a wake-up is never lost and never piles up.
    wake: Notify,
    /// The launched sidecar, if this program launched it.
    pid: Option<u32>,
}

#[derive(Debug)]
struct Core {
    connection: Connection,
    waiters: HashMap<RequestId, Waiter>,
    routes: HashMap<StreamId, Route>,
    vms: HashMap<VmId, Weak<Vm>>,
    ended: Option<ClientError>,
    closing: bool,
}

/// Who gets the answer to a request.
#[derive(Debug)]
enum Waiter {
    Call(oneshot::Sender<Result<Response, ClientError>>),
    Start(Arc<Entry>),
    Signal(Arc<Entry>, String, SignalTarget),
    Nobody,
}

/// Where a stream's bytes go to, or come from.
#[derive(Debug, Clone)]
enum Route {
    Output(Arc<Entry>, OutputStream),
    Stdin(Arc<Entry>),
}

/// What the writer sends next.
enum Outgoing {
    Control(String),
    Stdin { stream: StreamId, entry: Arc<Entry>, max_bytes: usize },
    Close,
}

impl Link {
    fn new(pid: Option<u32>) -> Self {
        let core = Core {
            connection: Connection::client(Limits::default()),
            waiters: HashMap::new(),
            routes: HashMap::new(),
            vms: HashMap::new(),
            ended: None,
            closing: false,
        };
        Self { core: Mutex::new(core), wake: Notify::new(), pid }
    }

    pub(crate) fn pid(&self) -> Option<u32> {
        self.pid
    }

    fn lock(&self) -> MutexGuard<'_, Core> {
        self.core.lock().expect("no code panics under this lock")
    }

    /// Why the link is dead, if it is.
    pub(crate) fn ended(&self) -> Option<ClientError> {
        self.lock().ended.clone()
    }

    // ---- requests ----

    /// Sends a request and awaits its answer. Dropping the future forgets the answer, not the request; a VM that was
    /// built for nobody is disposed of.
    pub(crate) async fn call(&self, scope: Scope, request: &Request) -> Result<Response, ClientError> {
        let (sender, receiver) = oneshot::channel();
        self.post(scope, request, Waiter::Call(sender))?;
        let mut answer = Answer { link: self, receiver };
        match (&mut answer.receiver).await {
            Ok(Ok(Response::Rejected(rejection))) => Err(ClientError::Rejected(rejection)),
            Ok(answer) => answer,
            Err(_) => Err(self.ended().unwrap_or(ClientError::Disposed)),
        }
    }

    fn post(&self, scope: Scope, request: &Request, waiter: Waiter) -> Result<(), ClientError> {
        let mut core = self.lock();
        core.check_alive()?;
        let id = core.connection.request(scope, request).map_err(ClientError::Rejected)?;
        core.waiters.insert(id, waiter);
        drop(core);
        self.wake.notify_one();
        Ok(())
    }

    /// Disposes of a VM without waiting for it: its handle is gone.
    pub(crate) fn abandon_vm(&self, vm: VmId) {
        let dispose = Request::DisposeVm(agentvm_wire::vm::DisposeVm::default());
        // A link that is dead has no VM any more.
        let _ = self.post(Scope::vm(vm), &dispose, Waiter::Nobody);
    }

    /// Chooses stream ids, makes the entry with them, and sends `execute`, all in one step, so that whatever the
    /// caller does next with the process follows it.
    pub(crate) fn execute(
        &self,
        vm: VmId,
        mut execute: Execute,
        wants: WantedStreams,
        make: impl FnOnce(StdioStreams) -> Arc<Entry>,
    ) -> Result<Arc<Entry>, ClientError> {
        let mut guard = self.lock();
        let core = &mut *guard;
        core.check_alive()?;
        let mut open = |wanted: bool| wanted.then(|| core.connection.next_stream());
        let streams =
            StdioStreams { stdin: open(wants.stdin), stdout: open(wants.stdout), stderr: open(wants.stderr) };
        execute.streams = streams;
        let id = core
            .connection
            .request(Scope::vm(vm), &Request::Execute(execute))
            .map_err(ClientError::Rejected)?;
        let entry = make(streams);
        if let Some(stream) = streams.stdin {
            core.connection.open_send(stream, vm);
            core.routes.insert(stream, Route::Stdin(entry.clone()));
        }
        for (stream, which) in
            [(streams.stdout, OutputStream::Stdout), (streams.stderr, OutputStream::Stderr)]
        {
            if let Some(stream) = stream {
                core.connection.open_receive(stream);
                core.routes.insert(stream, Route::Output(entry.clone(), which));
            }
        }
        core.waiters.insert(id, Waiter::Start(entry.clone()));
        drop(guard);
        self.wake.notify_one();
        Ok(entry)
    }

    /// Sends a signal; the entry has made sure that it is not already on its way.
    pub(crate) fn signal(&self, entry: &Arc<Entry>, signal: &str, target: SignalTarget) {
        let body = SignalProcess { process: entry.id, signal: signal.to_owned(), target };
        let waiter = Waiter::Signal(entry.clone(), signal.to_owned(), target);
        if self.post(Scope::vm(entry.vm), &Request::SignalProcess(body), waiter).is_err() {
            entry.signal_answered(signal, target);
        }
    }

    // ---- streams ----

    pub(crate) fn stream_ready(&self, stream: StreamId) {
        self.lock().connection.ready(stream);
        self.wake.notify_one();
    }

    pub(crate) fn consumed(&self, consumed: &[(StreamId, u64)]) {
        let mut core = self.lock();
        for (stream, offset) in consumed {
            core.connection.consumed(*stream, *offset);
        }
        drop(core);
        self.wake.notify_one();
    }

    pub(crate) fn stop_streams(&self, streams: impl Iterator<Item = StreamId>) {
        let mut core = self.lock();
        for stream in streams {
            core.connection.stop(stream, &Code::CANCELLED);
            core.routes.remove(&stream);
        }
        drop(core);
        self.wake.notify_one();
    }

    /// The process is gone: what was not sent is not sent.
    pub(crate) fn abandon_stdin(&self, stream: StreamId) {
        let mut core = self.lock();
        core.connection.reset(stream, &Code::EPIPE, "the process has ended");
        core.routes.remove(&stream);
        drop(core);
        self.wake.notify_one();
    }

    /// The header for stdin bytes; `None` if the stream was closed meanwhile.
    fn frame(&self, stream: StreamId, len: usize, fin: bool, more: bool) -> Option<Header> {
        let mut core = self.lock();
        if fin {
            core.routes.remove(&stream);
        }
        core.connection.frame(stream, len, fin, more)
    }

    fn next_outgoing(&self) -> Option<Outgoing> {
        let mut core = self.lock();
        if let Some(text) = core.connection.next_control() {
            return Some(Outgoing::Control(text));
        }
        if core.closing {
            return Some(Outgoing::Close);
        }
        while let Some(turn) = core.connection.next_turn() {
            if let Some(Route::Stdin(entry)) = core.routes.get(&turn.stream) {
                let (entry, max_bytes) = (entry.clone(), turn.max_bytes);
                return Some(Outgoing::Stdin { stream: turn.stream, entry, max_bytes });
            }
            core.connection.idle(turn.stream);
        }
        None
    }

    // ---- VMs ----

    pub(crate) fn register_vm(&self, vm: &Arc<Vm>) -> Result<(), ClientError> {
        let mut core = self.lock();
        core.check_alive()?;
        core.vms.insert(vm.id, Arc::downgrade(vm));
        Ok(())
    }

    /// Takes no more news of a VM and forgets its streams.
    pub(crate) fn forget_vm(&self, vm: VmId) {
        let mut guard = self.lock();
        let core = &mut *guard;
        core.vms.remove(&vm);
        core.routes.retain(|stream, route| {
            let (Route::Output(entry, _) | Route::Stdin(entry)) = route;
            let keep = entry.vm != vm;
            if !keep {
                core.connection.close_stream(*stream);
            }
            keep
        });
    }

    // ---- the end ----

    /// Ends the session and its VMs once what waits is sent; the driver and its thread end with it.
    pub(crate) fn close(&self) {
        self.lock().closing = true;
        self.wake.notify_one();
    }

    /// Everyone who waits gets the first cause, at once; so does every later caller.
    fn fail(&self, cause: ClientError) {
        let (cause, waiters, routes, vms) = {
            let mut core = self.lock();
            let cause = core.ended.get_or_insert(cause).clone();
            let core = &mut *core;
            (
                cause,
                std::mem::take(&mut core.waiters),
                std::mem::take(&mut core.routes),
                std::mem::take(&mut core.vms),
            )
        };
        for waiter in waiters.into_values() {
            match waiter {
                // Whoever dropped the receiver does not want to know.
                Waiter::Call(sender) => drop(sender.send(Err(cause.clone()))),
                Waiter::Start(entry) | Waiter::Signal(entry, ..) => entry.lost(cause.clone()),
                Waiter::Nobody => {}
            }
        }
        for route in routes.into_values() {
            let (Route::Output(entry, _) | Route::Stdin(entry)) = route;
            entry.lost(cause.clone());
        }
        for vm in vms.into_values().filter_map(|vm| vm.upgrade()) {
            vm.end(&cause);
        }
    }
}

/// An answer that is awaited. It may have been delivered and not yet been read when the caller loses interest.
struct Answer<'a> {
    link: &'a Link,
    receiver: oneshot::Receiver<Result<Response, ClientError>>,
}

impl Drop for Answer<'_> {
    fn drop(&mut self) {
        self.receiver.close();
        if let Ok(Ok(Response::VmCreated(created))) = self.receiver.try_recv() {
            self.link.abandon_vm(created.vm);
        }
    }
}

/// Which streams a process shall have.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WantedStreams {
    pub(crate) stdin: bool,
    pub(crate) stdout: bool,
    pub(crate) stderr: bool,
}

impl Core {
    fn check_alive(&self) -> Result<(), ClientError> {
        match &self.ended {
            Some(cause) => Err(cause.clone()),
            None if self.closing => Err(ClientError::Disposed),
            None => Ok(()),
        }
    }
}
