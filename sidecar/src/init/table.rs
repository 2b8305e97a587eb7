//! What init knows about the processes it started.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use agentvm_wire::{id::ProcessId, process::SignalTarget};
use rustix::process::Pid;

use super::messages::Start;
use crate::packet::Packet;

/// Inode of the UTS namespace that a started process and all its descendants share, and nobody else: none of them
/// can leave it or make another, because that takes a capability no guest has. Without namespaces, a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Mark(pub u64);

/// A started process that is not yet reaped.
#[derive(Debug)]
pub(super) struct Process {
    pub id: ProcessId,
    pub pid: Pid,
    /// Milliseconds since the epoch: when that was asked for, then when it executed its command.
    pub started_at_ms: u64,
    pub stage: Stage,
}

impl Process {
    pub(super) fn is_starting(&self) -> bool {
        matches!(self.stage, Stage::Starting { .. })
    }
}

/// How far it is.
#[derive(Debug)]
pub(super) enum Stage {
    /// It has not executed its command yet.
    Starting {
        /// Ended, with the outcome in it, when it has.
        socket: OwnedFd,
        /// When it is given up.
        deadline: Instant,
        /// Signals that came too early, in order.
        held: VecDeque<HeldSignal>,
        /// The request, if a spare has taken it over or a keeper watches: a fresh child gets it should that one be killed, or
        /// the keeper go away.
        again: Option<Packet<Start>>,
        /// CPU time that its tree may use.
        cpu_limit: Option<Duration>,
        /// Its time was up: whatever it does now, it is killed.
        expired: bool,
    },
    /// It has.
    Running,
}

/// A signal for a process that has not executed its command yet.
#[derive(Debug, Clone, Copy)]
pub(super) struct HeldSignal {
    pub token: u64,
    pub signal: i32,
    pub target: SignalTarget,
}

/// Started processes by pid and by id, and the marks of all trees that may still have members.
#[derive(Debug, Default)]
pub(super) struct Table {
    by_pid: BTreeMap<i32, Process>,
    pid_of: BTreeMap<ProcessId, Pid>,
    /// The kernel reuses an inode once no process is left in its namespace; the newest owner is then the right one,
    /// and there are never more marks than there were namespaces at once.
    owner_of: BTreeMap<Mark, ProcessId>,
    mark_of: BTreeMap<ProcessId, Mark>,
}

impl Table {
    pub(super) fn insert(&mut self, process: Process) {
        self.pid_of.insert(process.id, process.pid);
        self.by_pid.insert(process.pid.as_raw_nonzero().get(), process);
    }

    pub(super) fn remove(&mut self, pid: Pid) -> Option<Process> {
        let process = self.by_pid.remove(&pid.as_raw_nonzero().get())?;
        self.pid_of.remove(&process.id);
        Some(process)
    }

    pub(super) fn by_pid(&mut self, pid: Pid) -> Option<&mut Process> {
        self.by_pid.get_mut(&pid.as_raw_nonzero().get())
    }

    /// A process that was started, not one of its descendants.
    pub(super) fn root(&self, pid: Pid) -> Option<&Process> {
        self.by_pid.get(&pid.as_raw_nonzero().get())
    }

    pub(super) fn pid_of(&self, id: ProcessId) -> Option<Pid> {
        self.pid_of.get(&id).copied()
    }

    pub(super) fn by_id(&mut self, id: ProcessId) -> Option<&mut Process> {
        self.by_pid(self.pid_of(id)?)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Process> {
        self.by_pid.values()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Process> {
        self.by_pid.values_mut()
    }

    pub(super) fn set_mark(&mut self, id: ProcessId, mark: Mark) {
        if let Some(earlier) = self.owner_of.insert(mark, id) {
            self.mark_of.remove(&earlier);
        }
        self.mark_of.insert(id, mark);
    }

    pub(super) fn mark_of(&self, id: ProcessId) -> Option<Mark> {
        self.mark_of.get(&id).copied()
    }

    pub(super) fn owner_of(&self, mark: Mark) -> Option<ProcessId> {
        self.owner_of.get(&mark).copied()
    }
}
