//! What sidecar and init say to each other. Everything that a guest chose is bytes.

use agentvm_wire::{
    id::ProcessId,
    process::{ProcessRef, SignalTarget},
};
use serde::{Deserialize, Serialize};

use crate::isolation::Fault;
use crate::isolation::report::Facts;
use crate::packet;

/// The first message of init.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Boot {
    /// The VM stands; this is what it looks like from inside. Descriptor: the socket from which a spare takes its
    /// [`Start`].
    Ready(Facts),
    /// It does not, and init is about to exit.
    Failed(Fault),
}

/// From the sidecar to init.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Request {
    /// Start a process. Descriptors: the memfd of [`Text::Memory`], the entrance of [`Memory::Group`], the socket to
    /// the keeper of a watched one, then one for each [`Stream::Passed`].
    Start {
        /// Its name from now on.
        process: ProcessId,
        /// What it shall be.
        start: Start,
        /// `start` and the descriptors were sent to the spare, too, which is it if it lived to receive them.
        handed: bool,
    },
    /// Signal a process that was started.
    Signal {
        /// Comes back with the answer.
        token: u64,
        /// Which.
        process: ProcessId,
        /// Signal number.
        signal: i32,
        /// How far the signal goes.
        target: SignalTarget,
    },
    /// A process's time is up: its start is given up, or its tree killed. Nothing answers.
    Expire {
        /// Which.
        process: ProcessId,
    },
    /// Everything in the VM gets SIGTERM; the VM ends when nothing is left.
    Terminate,
    /// Read something in the VM, a page of it. Descriptor: the file to write rows to.
    Read {
        /// Comes back with the answer.
        token: u64,
        /// What.
        what: Reading,
        /// Bytes of rows at most.
        max_bytes: u64,
        /// Milliseconds after which it is given up.
        deadline_ms: u64,
    },
}

/// What there is to read, and where the page begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Reading {
    /// All processes with a higher pid, as `Row`s.
    Table {
        /// Than this.
        after: u32,
    },
    /// The arguments of a process, as one row of bytes.
    Cmdline {
        /// Which.
        of: ProcessRef,
        /// From this byte on.
        offset: u64,
    },
    /// The open descriptors of a process with a higher number, as `Handle`s.
    FileHandles {
        /// Which.
        of: ProcessRef,
        /// Than this; all if there is none.
        after: Option<u32>,
    },
    /// What the VM uses, as one `Used`.
    Usage,
}

/// What a new process shall be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Start {
    /// How many arguments are in the text, without the command.
    pub arguments: u32,
    /// How many variables are in the text.
    pub variables: u32,
    /// Working directory, command, argv\[0\], arguments, variables.
    pub text: Text,
    /// Standard input, output and error.
    pub streams: [Stream; 3],
    /// Whether the command is a script, which need not be executable.
    pub script: bool,
    /// Nanoseconds of the monotonic clock, after which it must not start any more.
    pub deadline_ns: Option<u64>,
    /// Microseconds of CPU time that its tree may use.
    pub cpu_limit_us: Option<u64>,
    /// What holds it to a memory limit of its own.
    pub memory: Option<Memory>,
    /// Whether its key shall be told.
    pub observed: bool,
    /// A keeper is to see it.
    pub watched: bool,
}

/// What holds a process to a memory limit of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Memory {
    /// A group whose entrance came along.
    Group,
    /// `RLIMIT_DATA`, bytes.
    Each(u64),
}

/// Strings, each ended by a NUL.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Text {
    /// Short enough to come along.
    Inline(Vec<u8>),
    /// In a sealed memfd, the first descriptor.
    Memory,
}

impl Text {
    /// Bytes that come along; leaves room in a message for everything else.
    pub(crate) const MAX_INLINE_BYTES: usize = packet::MAX_BYTES - 1024;
}

/// Where a standard stream of a new process goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Stream {
    /// The VM's own `/dev/null`.
    Null,
    /// A descriptor that came along.
    Passed,
    /// Where standard output goes.
    ToStdout,
}

/// From init to the sidecar.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Reply {
    /// It runs.
    Started {
        /// Which.
        process: ProcessId,
        /// Its pid inside.
        pid: u32,
        /// Milliseconds since the epoch.
        started_at_ms: u64,
        /// Clock ticks from the start of the machine to its own, where that was asked for.
        start_ticks: Option<u64>,
    },
    /// It never ran.
    StartFailed {
        /// Which.
        process: ProcessId,
        /// What failed.
        step: StartStep,
        /// Why.
        errno: i32,
    },
    /// Its tree is being killed because it used up its CPU time. Told before its end.
    CpuLimit {
        /// Which.
        process: ProcessId,
    },
    /// It ended.
    Exited {
        /// Which.
        process: ProcessId,
        /// How.
        exit: Exit,
    },
    /// A signal was sent.
    Signaled {
        /// Of the request.
        token: u64,
        /// To how many processes, or 1 for a group.
        delivered: u32,
    },
    /// The rows are written.
    Read {
        /// Of the request.
        token: u64,
        /// Whether all of them are; else why not.
        outcome: ReadOutcome,
    },
}

impl Reply {
    /// Whether it can be believed.
    pub(crate) fn is_sound(&self) -> bool {
        match self {
            Self::Exited { exit, .. } => exit.is_sound(),
            _ => true,
        }
    }
}

/// How a process ended, and what it and the children it waited for used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    /// What it passed to exit, if it called that.
    pub exit_code: Option<u8>,
    /// The signal that ended it, if one did.
    pub signal: Option<i32>,
    /// Whether a core was dumped.
    pub core_dumped: bool,
    /// Microseconds of user time.
    pub user_us: u64,
    /// Microseconds of kernel time.
    pub sys_us: u64,
    /// Largest resident set in bytes.
    pub max_rss_bytes: u64,
    /// Milliseconds since the epoch.
    pub exited_at_ms: u64,
}

impl Exit {
    /// Whether a kernel could have said so. An init that a guest has taken over may say anything.
    pub(crate) fn is_sound(&self) -> bool {
        const LAST_SIGNAL: i32 = 64;
        match (self.exit_code, self.signal) {
            (Some(_), None) => !self.core_dumped,
            (None, Some(signal)) => (1..=LAST_SIGNAL).contains(&signal),
            _ => false,
        }
    }

    /// The code as a shell tells it: 128 and the signal for a death by one.
    pub(crate) fn shell_code(&self) -> i32 {
        match self.signal {
            Some(signal) => signal.saturating_add(128),
            None => self.exit_code.map_or(0, i32::from),
        }
    }
}

/// How reading went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ReadOutcome {
    /// Everything is there.
    Complete,
    /// The rows did not fit.
    Truncated,
    /// There is no such process; the helper ended early, was too slow, or could not be started.
    Failed {
        /// Why.
        errno: i32,
    },
}

/// The part of starting a process that failed, in the order they happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum StartStep {
    /// The request: a descriptor missing, a NUL in a string, a process id that is taken.
    Request,
    /// Making a process.
    Fork,
    /// Its session.
    Session,
    /// Its standard streams.
    Stdio,
    /// Its limits.
    Limits,
    /// Becoming the guest's user.
    Identity,
    /// Entering the working directory.
    Cwd,
    /// It ended, or was not done in time, before it could execute anything.
    Handshake,
    /// Its time was up before it could execute the command.
    Deadline,
    /// Executing the command.
    Exec,
}

impl StartStep {
    /// Stable name, as it crosses the wire: snake case.
    pub fn name(self) -> &'static str {
        match self {
            Self::Request => "request",
            Self::Fork => "fork",
            Self::Session => "session",
            Self::Stdio => "stdio",
            Self::Limits => "limits",
            Self::Identity => "identity",
            Self::Cwd => "cwd",
            Self::Handshake => "handshake",
            Self::Deadline => "deadline",
            Self::Exec => "exec",
        }
    }
}
