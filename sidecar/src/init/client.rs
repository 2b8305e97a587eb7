//! The sidecar's side of a VM's init: [`Commands`] go in, [`Events`] come out.
//!
//! Commands are sent at once where the socket has room; else they wait, in order, and are sent while [`Events::next`]
//! is awaited. The VM ends when both halves are dropped.

mod connection;
mod reading;
mod spec;

use std::collections::VecDeque;
use std::sync::Arc;

use agentvm_wire::{id::ProcessId, process::SignalTarget};
use rustix::io::Errno;

pub(crate) use connection::{Connection, Ending, Lease};
pub use reading::{Page, ReadError};
pub(crate) use spec::now_ns;
pub use spec::{MemoryLimit, StartSpec, Stdio};

use crate::isolation::cgroup::Group;

use super::messages::{Exit, Reply, Request, StartStep};

/// Sends requests to one VM's init. Cheap to clone; all clones keep one order.
#[derive(Debug, Clone)]
pub struct Commands {
    connection: Arc<Connection>,
}

/// What happens in one VM.
#[derive(Debug)]
pub struct Events {
    connection: Arc<Connection>,
    ready: VecDeque<Event>,
    ended: bool,
}

/// One thing that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A process has executed its command.
    Started {
        /// Which.
        process: ProcessId,
        /// Its pid inside the VM.
        pid: u32,
        /// Milliseconds since the epoch.
        started_at_ms: u64,
        /// Clock ticks from the start of the machine to its own, where that was asked for.
        start_ticks: Option<u64>,
    },
    /// A process could not be started; nothing of it is left.
    StartFailed {
        /// Which.
        process: ProcessId,
        /// What failed.
        step: StartStep,
        /// Why, as a Linux errno.
        errno: i32,
    },
    /// A tree is being killed because it used up its CPU time; before its process's `Exited`, if that one still runs.
    CpuLimit {
        /// The process it began with.
        process: ProcessId,
    },
    /// A process ended; always after its `Started`.
    Exited {
        /// Which.
        process: ProcessId,
        /// How.
        exit: Exit,
    },
    /// A signal was sent.
    Signaled {
        /// As passed to [`Commands::signal`].
        token: u64,
        /// To how many processes; a group counts as one. 0: there was none any more.
        delivered: u32,
    },
    /// Init and everything else in the VM is gone. The last event.
    Ended,
}

/// Both halves of a fresh connection.
pub(crate) fn split(connection: Connection) -> (Commands, Events) {
    let connection = Arc::new(connection);
    let events = Events { connection: Arc::clone(&connection), ready: VecDeque::new(), ended: false };
    (Commands { connection }, events)
}

impl Commands {
    /// Starts a process. The outcome is an event: [`Event::Started`] or [`Event::StartFailed`].
    ///
    /// Ordering: before every later command. The descriptors in `spec` are closed here once init has them.
    pub fn start(&self, process: ProcessId, spec: StartSpec) {
        match spec.pack() {
            Ok((start, descriptors)) => {
                self.connection.send_start(process, start, descriptors);
            }
            Err(errno) => self.connection.fail_start(process, errno),
        }
    }

    /// Signals a started process; [`Event::Signaled`] with this token answers. One that is still being started gets
    /// the signal once it has executed its command; one that has ended gets nothing.
    pub fn signal(&self, token: u64, process: ProcessId, signal: i32, target: SignalTarget) {
        self.connection.ask(&Request::Signal { token, process, signal, target });
    }

    /// A started process's time is up: its tree is killed, or its start given up, which
    /// [`Event::StartFailed`] tells with the step [`StartStep::Deadline`].
    pub fn expire(&self, process: ProcessId) {
        self.connection.send(&Request::Expire { process }, Vec::new());
    }

    /// Sends SIGTERM to everything in the VM. [`Event::Ended`] follows when nothing is left of it.
    pub fn terminate(&self) {
        self.connection.send(&Request::Terminate, Vec::new());
    }

    /// What the VM's groups count; nothing once it is gone.
    pub(crate) fn group<T>(&self, ask: impl FnOnce(&Group) -> T) -> Option<T> {
        self.connection.with_group(ask)
    }

    /// Ends the VM at once: SIGKILL to init. [`Event::Ended`] follows when everything in it is gone.
    pub fn end(&self) {
        self.connection.kill();
    }
}

impl Events {
    /// The next event. After [`Event::Ended`] it never resolves.
    ///
    /// Cancel safety: safe; no event is lost.
    pub async fn next(&mut self) -> Event {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return event;
            }
            if self.ended {
                return std::future::pending().await;
            }
            let connection = Arc::clone(&self.connection);
            let ended = connection.wait_and_flush().await;
            self.drain();
            if ended {
                self.ended = true;
                self.connection.abandon_readings();
                self.ready.push_back(Event::Ended);
            }
        }
    }

    /// Takes everything that has arrived.
    fn drain(&mut self) {
        self.ready.extend(self.connection.take_failed_starts().into_iter().map(|(process, errno)| {
            Event::StartFailed { process, step: StartStep::Request, errno: errno.raw_os_error() }
        }));
        loop {
            match self.connection.receive() {
                Ok(Some(reply)) if reply.is_sound() => self.ready.extend(self.translate(&reply)),
                // An init that does not speak our language is ended; its end is the event.
                Ok(Some(_)) | Err(Errno::BADMSG | Errno::MSGSIZE) => return self.connection.kill(),
                Ok(None) | Err(_) => return,
            }
        }
    }

    fn translate(&self, reply: &Reply) -> Option<Event> {
        if let Reply::Started { .. } | Reply::StartFailed { .. } | Reply::Signaled { .. } = reply {
            self.connection.answered();
        }
        Some(match *reply {
            Reply::Started { process, pid, started_at_ms, start_ticks } => {
                Event::Started { process, pid, started_at_ms, start_ticks }
            }
            Reply::StartFailed { process, step, errno } => Event::StartFailed { process, step, errno },
            Reply::CpuLimit { process } => Event::CpuLimit { process },
            Reply::Exited { process, exit } => Event::Exited { process, exit },
            Reply::Signaled { token, delivered } => Event::Signaled { token, delivered },
            Reply::Read { token, outcome } => {
                self.connection.finish_reading(token, outcome);
                return None;
            }
        })
    }
}
