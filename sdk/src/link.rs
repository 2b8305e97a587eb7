//! The link to a sidecar: one connection, shared by every VM and every process of it.
//!
//! Any thread may post to it: it takes the lock, tells the connection core what to send, and writes it if the socket
//! takes it at once (`writer`) or wakes the driver, which lives on a thread of its own (`driver`). No lock is held across an await, and no queue stands between: what waits
//! to be sent is state (requests are counted, credit and signals coalesced, stdin bounded per process). Where both are
//! taken, the link's lock comes before an entry's.
//!
//! The first cause of death is kept and given to every later caller.

mod driver;
mod incoming;
mod requests;
mod timers;
mod writer;

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, OnceLock, Weak},
    task::Waker,
};

use agentvm_wire::{
    connection::{Connection, Turn},
    error::Code,
    id::{RequestId, StreamId, VmId},
    message::{Request, Response, Scope},
    process::{Signal, SignalTarget},
    session::Limits,
    stdio::Header,
    vm::VmCreated,
};
use bytes::Bytes;
use tokio::sync::{Notify, oneshot};

pub(crate) use driver::{Driver, start};
pub(crate) use requests::WantedStreams;
pub(crate) use timers::Timer;
use timers::Timers;
use writer::Writer;

use crate::{
    config::ProcessLimits,
    error::ClientError,
    observer::Observation,
    process::{
        entry::Entry,
        retained::{self, Pressure},
    },
    stdio::{OutputStream, stdin::StdinChunk},
    vm::{OwnedVm, Vm},
};

/// One connection. See the module's notes.
#[derive(Debug)]
pub(crate) struct Link {
    core: Mutex<Core>,
    writer: Writer,
    /// Wakes the driver's writing: one permit, so a wake-up is never lost and never piles up.
    wake: Notify,
    /// Tells the driver that nobody needs the link any more; kept until it looks.
    closing: Notify,
    /// Another timer is the first now; kept until the driver looks.
    timers_changed: Notify,
    timers: Mutex<Timers>,
    /// The launched sidecar, if this program launched it.
    pid: OnceLock<u32>,
}

#[derive(Debug)]
struct Core {
    connection: Connection,
    waiters: HashMap<RequestId, Waiter>,
    /// Signals (one of a kind per process) and farewells (one per VM): what must not be lost because too many requests
    /// wait for their answer waits here, in order.
    deferred: VecDeque<(Scope, Request, Waiter)>,
    routes: HashMap<StreamId, Route>,
    vms: HashMap<VmId, Weak<Vm>>,
    ended: Option<ClientError>,
    closing: bool,
}

/// Who gets the answer to a request.
#[derive(Debug)]
enum Waiter {
    Call(oneshot::Sender<Result<Response, ClientError>>),
    Create(ProcessLimits, oneshot::Sender<Result<OwnedVm, ClientError>>),
    Observe(Arc<Observation>, oneshot::Sender<Result<Response, ClientError>>),
    Start(Arc<Entry>),
    Signal(Arc<Entry>, Signal, SignalTarget),
    Nobody,
}

/// Where a stream's bytes go to, or come from.
#[derive(Debug, Clone)]
enum Route {
    Output(Arc<Entry>, OutputStream),
    Stdin(Arc<Entry>),
    Events(Arc<Observation>),
}

impl Route {
    fn vm(&self) -> VmId {
        match self {
            Self::Output(entry, _) | Self::Stdin(entry) => entry.vm,
            Self::Events(observation) => observation.vm,
        }
    }
}

/// What the writer sends next.
enum Outgoing {
    Control(String),
    Stdin(Header, Bytes),
    Close,
}

impl Link {
    fn new() -> Self {
        let core = Core {
            connection: Connection::client(Limits::default()),
            waiters: HashMap::new(),
            deferred: VecDeque::new(),
            routes: HashMap::new(),
            vms: HashMap::new(),
            ended: None,
            closing: false,
        };
        Self {
            core: Mutex::new(core),
            writer: Writer::default(),
            wake: Notify::new(),
            closing: Notify::new(),
            timers_changed: Notify::new(),
            timers: Mutex::default(),
            pid: OnceLock::new(),
        }
    }

    pub(crate) fn pid(&self) -> Option<u32> {
        self.pid.get().copied()
    }

    fn lock(&self) -> MutexGuard<'_, Core> {
        self.core.lock().expect("no code panics under this lock")
    }

    /// Why the link is dead, if it is.
    pub(crate) fn ended(&self) -> Option<ClientError> {
        self.lock().ended.clone()
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

    /// Nobody cares for these streams any more: what was not sent is not sent, what still comes goes nowhere.
    pub(crate) fn abandon_streams(&self, streams: impl IntoIterator<Item = StreamId>) {
        let mut core = self.lock();
        for stream in streams {
            core.routes.remove(&stream);
            core.abandon_stream(stream);
        }
        drop(core);
        self.wake.notify_one();
    }

    fn next_outgoing(&self) -> Option<Outgoing> {
        let mut wakers = Vec::new();
        let next = self.lock().next_outgoing(&mut wakers);
        wakers.into_iter().for_each(Waker::wake);
        next
    }

    // ---- VMs ----

    /// Makes a VM known, before anything that is said of it is read.
    fn register_vm(self: &Arc<Self>, created: VmCreated, limits: ProcessLimits) -> OwnedVm {
        let vm = Vm::new(created.vm, self.clone(), limits);
        self.lock().vms.insert(vm.id, Arc::downgrade(&vm));
        OwnedVm { vm, created }
    }

    /// A VM that its handles still hold.
    fn vm(&self, id: VmId) -> Option<Arc<Vm>> {
        self.lock().vms.get(&id).and_then(Weak::upgrade)
    }

    /// The processes of a VM hold much output.
    pub(crate) fn relieve(&self, vm: VmId, pressure: Pressure) {
        if let Some(vm) = self.vm(vm) {
            retained::relieve(&vm, pressure);
        }
    }

    /// Takes no more news of a VM and gives up its streams: it may live on for a grace.
    pub(crate) fn forget_vm(&self, vm: VmId) {
        let mut core = self.lock();
        core.vms.remove(&vm);
        let given_up: Vec<_> = core.routes.extract_if(|_, route| route.vm() == vm).collect();
        for (stream, _) in &given_up {
            core.abandon_stream(*stream);
        }
        drop(core);
        self.end_observations(given_up.iter().map(|(_, route)| route));
        self.wake.notify_one();
    }

    // ---- the end ----

    /// Ends the session and its VMs once what waits is sent; the driver and its thread end with it.
    pub(crate) fn close(&self) {
        self.lock().closing = true;
        self.closing.notify_one();
        self.wake.notify_one();
    }

    /// Nothing more will be told; exits that waited for that are known all the same.
    fn end_observations<'a>(&self, routes: impl Iterator<Item = &'a Route>) {
        for route in routes {
            if let Route::Events(observation) = route {
                self.exited(observation.end());
            }
        }
    }

    /// Everyone who waits gets the first cause, at once; so does every later caller.
    fn fail(&self, cause: ClientError) {
        let (cause, waiters, deferred, routes, vms) = {
            let mut core = self.lock();
            let cause = core.ended.get_or_insert(cause).clone();
            let core = &mut *core;
            (
                cause,
                std::mem::take(&mut core.waiters),
                std::mem::take(&mut core.deferred),
                std::mem::take(&mut core.routes),
                std::mem::take(&mut core.vms),
            )
        };
        self.drop_timers();
        self.end_observations(routes.values());
        for waiter in waiters.into_values().chain(deferred.into_iter().map(|(_, _, waiter)| waiter)) {
            match waiter {
                // Whoever dropped the receiver does not want to know.
                Waiter::Call(sender) | Waiter::Observe(_, sender) => drop(sender.send(Err(cause.clone()))),
                Waiter::Create(_, sender) => drop(sender.send(Err(cause.clone()))),
                Waiter::Start(entry) | Waiter::Signal(entry, ..) => entry.lost(cause.clone()),
                Waiter::Nobody => {}
            }
        }
        for route in routes.into_values() {
            if let Route::Output(entry, _) | Route::Stdin(entry) = route {
                entry.lost(cause.clone());
            }
        }
        for vm in vms.into_values().filter_map(|vm| vm.upgrade()) {
            vm.end(&cause);
        }
    }
}

impl Core {
    /// Nobody cares for a stream any more, whichever way it goes.
    fn abandon_stream(&mut self, stream: StreamId) {
        self.connection.reset(stream, &Code::EPIPE, "the process has ended");
        self.connection.stop(stream, &Code::CANCELLED);
    }

    /// Control first, then the streams in turn.
    fn next_outgoing(&mut self, wakers: &mut Vec<Waker>) -> Option<Outgoing> {
        if let Some(text) = self.connection.next_control() {
            return Some(Outgoing::Control(text));
        }
        if self.closing {
            return Some(Outgoing::Close);
        }
        while let Some(turn) = self.connection.next_turn() {
            if let Some((header, bytes)) = self.next_stdin(turn, wakers) {
                return Some(Outgoing::Stdin(header, bytes));
            }
        }
        None
    }

    /// Takes and frames the bytes in one step: a write that comes in between would find its stream ready already, and
    /// then see it put to rest by a frame that knew nothing of it.
    fn next_stdin(&mut self, turn: Turn, wakers: &mut Vec<Waker>) -> Option<(Header, Bytes)> {
        let Some(Route::Stdin(entry)) = self.routes.get(&turn.stream) else {
            self.connection.idle(turn.stream);
            return None;
        };
        let StdinChunk { bytes, fin, more } = entry.take_stdin(turn.max_bytes, wakers);
        if bytes.is_empty() && !fin {
            self.connection.idle(turn.stream);
            return None;
        }
        if fin {
            self.routes.remove(&turn.stream);
        }
        let header = self.connection.frame(turn.stream, bytes.len(), fin, more)?;
        Some((header, bytes))
    }
}
