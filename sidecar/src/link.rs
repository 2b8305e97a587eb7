//! The link to a client: the connection core, the pipes behind its streams, and who wakes the writer.
//!
//! Everything of one session runs on one thread; the lock is there for `Send`, is never contended, and is never held
//! across an await.

mod drive;

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
};

use agentvm_wire::{
    connection::Connection,
    error::{Code, Rejection},
    id::{RequestId, StreamId, VmId},
    message::{Event, Response, Scope},
    session::Limits,
};
use tokio::sync::Notify;

pub(crate) use drive::{Ended, Handler, drive};

use crate::stdio::{outflow::Outflow, sink::Sink};

#[derive(Debug)]
pub(crate) struct Link {
    core: Mutex<Core>,
    /// Wakes the writer: one permit, so a wake-up is never lost and never piles up.
    wake: Notify,
    /// Wakes the reader where it waits for a client that does not read its answers.
    drained: Notify,
    /// Nothing can be written any more.
    mute: AtomicBool,
}

#[derive(Debug)]
struct Core {
    connection: Connection,
    /// Each with the VM it belongs to.
    sources: HashMap<StreamId, (VmId, Arc<dyn Outflow>)>,
    sinks: HashMap<StreamId, (VmId, Arc<Sink>)>,
}

impl Link {
    pub(crate) fn new(limits: Limits) -> Self {
        let core =
            Core { connection: Connection::server(limits), sources: HashMap::new(), sinks: HashMap::new() };
        Self {
            core: Mutex::new(core),
            wake: Notify::new(),
            drained: Notify::new(),
            mute: AtomicBool::new(false),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Core> {
        self.core.lock().expect("no code panics under this lock")
    }

    fn is_mute(&self) -> bool {
        self.mute.load(Ordering::Relaxed)
    }

    fn mute(&self) {
        self.mute.store(true, Ordering::Relaxed);
        self.drained.notify_one();
    }

    pub(crate) fn limits(&self) -> Limits {
        *self.lock().connection.limits()
    }

    /// Whether `hello` was answered with `welcome`.
    pub(crate) fn is_open(&self) -> bool {
        self.lock().connection.is_open()
    }

    pub(crate) fn respond(&self, id: RequestId, response: &Response) {
        self.lock().connection.respond(id, response);
        self.wake.notify_one();
    }

    pub(crate) fn reject(&self, id: RequestId, rejection: Rejection) {
        self.respond(id, &Response::Rejected(rejection));
    }

    pub(crate) fn event(&self, vm: VmId, event: &Event) {
        self.lock().connection.event(Scope::vm(vm), event);
        self.wake.notify_one();
    }

    /// Notes the streams a request opens, lowest id first; nothing is opened if one of them was used before, or if their
    /// window is not to be had.
    pub(crate) fn open_streams(
        &self,
        mut streams: Vec<StreamId>,
        window: Option<u64>,
    ) -> Result<(), Rejection> {
        streams.sort_unstable();
        let mut core = self.lock();
        core.connection.check_window(window, streams.len())?;
        streams.into_iter().try_for_each(|stream| core.connection.open_stream(stream))
    }

    /// Connects what we have to send to its stream.
    pub(crate) fn add_source(
        &self,
        stream: StreamId,
        source: Arc<dyn Outflow>,
        lane: VmId,
        window: Option<u64>,
    ) {
        let mut core = self.lock();
        core.connection.open_send(stream, lane, window);
        core.sources.insert(stream, (lane, source));
    }

    /// Connects a stream we receive to a pipe we write.
    pub(crate) fn add_sink(&self, sink: &Arc<Sink>, vm: VmId, window: Option<u64>) {
        let mut core = self.lock();
        core.connection.open_receive(sink.stream(), window);
        core.sinks.insert(sink.stream(), (vm, sink.clone()));
    }

    /// A source has bytes, or its end, to send.
    pub(crate) fn ready(&self, stream: StreamId) {
        self.lock().connection.ready(stream);
        self.wake.notify_one();
    }

    /// A sink has written everything below `offset`.
    pub(crate) fn consumed(&self, stream: StreamId, offset: u64) {
        self.lock().connection.consumed(stream, offset);
        self.wake.notify_one();
    }

    /// Nobody reads a sink's pipe any more.
    pub(crate) fn stop(&self, stream: StreamId, why: &Code) {
        let mut core = self.lock();
        core.connection.stop(stream, why);
        core.sinks.remove(&stream);
        drop(core);
        self.wake.notify_one();
    }

    /// Forgets streams without a word: their request was rejected.
    pub(crate) fn close_streams(&self, streams: impl IntoIterator<Item = StreamId>) {
        let mut core = self.lock();
        for stream in streams {
            core.close_stream(stream);
        }
    }

    /// Whether output of a VM may still have to be sent.
    pub(crate) fn has_sources(&self, vm: VmId) -> bool {
        self.lock().sources.values().any(|(owner, _)| *owner == vm)
    }

    /// Forgets every stream of a VM that is gone.
    pub(crate) fn close_vm(&self, vm: VmId) {
        let mut core = self.lock();
        let sources = core.sources.iter().filter(|(_, (owner, _))| *owner == vm).map(|(stream, _)| *stream);
        let sinks = core.sinks.iter().filter(|(_, (owner, _))| *owner == vm).map(|(stream, _)| *stream);
        for stream in sources.chain(sinks).collect::<Vec<_>>() {
            core.close_stream(stream);
        }
    }
}

impl Core {
    fn close_stream(&mut self, stream: StreamId) {
        self.connection.close_stream(stream);
        if let Some((_, source)) = self.sources.remove(&stream) {
            source.end();
        }
        if let Some((_, sink)) = self.sinks.remove(&stream) {
            sink.abandon();
        }
    }
}
