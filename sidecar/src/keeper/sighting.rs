//! What a keeper tells: the whole of what the rest of the sidecar knows of what it sees.
//!
//! What a guest chose is bytes. Processes are told by a [`Key`] that is never used again; their pid is the one they have
//! in their VM.

use std::net::SocketAddr;

use agentvm_wire::id::ProcessId;
use serde::{Deserialize, Serialize};

/// Bytes of path, arguments and working directory that one sighting holds; what goes beyond is cut off, and marked.
pub const MAX_TEXT_BYTES: usize = 8 << 10;

/// By which means a tree is seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Backend {
    /// `ptrace(2)`: every process, exactly.
    Ptrace,
    /// Seccomp user notification (`seccomp_unotify(2)`) with pidfds.
    Notification,
    /// Looking at `/proc` again and again: what is short is missed.
    Polling,
}

impl Backend {
    /// From the best to the last resort.
    pub const ALL: [Self; 3] = [Self::Ptrace, Self::Notification, Self::Polling];

    /// Stable name, as it crosses the wire and as `AGENTVM_OBSERVER_BACKEND` takes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ptrace => "ptrace",
            Self::Notification => "notification",
            Self::Polling => "polling",
        }
    }

    /// The one of a name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|backend| backend.name() == name)
    }
}

/// What is to be seen of a VM's processes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wanted {
    /// Starts, executions and ends.
    pub process: bool,
    /// Files opened, removed, renamed, …
    pub file: bool,
    /// Connections made, addresses taken, …
    pub network: bool,
}

impl Wanted {
    /// Whether that is among it.
    pub(crate) fn covers(self, Self { process, file, network }: Self) -> bool {
        self.process >= process && self.file >= file && self.network >= network
    }
}

/// The first message to a keeper.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Orders {
    /// What is to be seen.
    pub wanted: Wanted,
    /// The means for the process category, in the order they are tried.
    pub ladder: Vec<Backend>,
    /// What cannot be seen shall not run: the tree dies with its keeper.
    pub require_exact: bool,
    /// Beside notification, have forks recorded (`perf_event_open(2)`), too: that was found to work.
    pub records: bool,
}

/// A tree that runs already, as init knew it a moment ago.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Running {
    /// Init, or its supervisor, as the host counts.
    pub below: u32,
    /// The process it began with, unless that has ended, as its VM counts.
    pub root: Option<u32>,
    /// Its members whose parents are none, as its VM counts.
    pub tops: Vec<u32>,
}

/// A process, for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Key {
    /// As the host counts.
    pub host_pid: u32,
    /// Clock ticks from the start of the machine to that of the process.
    pub start_ticks: u64,
}

/// Who did something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subject {
    /// Which process.
    pub key: Key,
    /// As its VM counts; unknown if it was over before anybody could look.
    pub pid: Option<u32>,
}

/// One thing that is told, in the order it was seen.
///
/// Of one process: [`Watched`](Self::Watched) or [`What::Forked`] comes first and [`What::Exited`] last. A parent's
/// first comes before its child's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Sighting {
    /// A tree is seen from here on. Before its root executes its command.
    Watched {
        /// Whose.
        tree: ProcessId,
        /// Its root.
        root: Subject,
        /// Nanoseconds of the monotonic clock.
        at_ns: u64,
        /// By which means.
        backend: Backend,
    },
    /// A tree is not seen. Its root runs all the same.
    Unwatched {
        /// Whose.
        tree: ProcessId,
        /// Why.
        loss: Loss,
        /// What the kernel said.
        errno: i32,
    },
    /// A process did something.
    Saw {
        /// To whose tree it belongs; none if it was found in a VM that ran already.
        tree: Option<ProcessId>,
        /// Who.
        who: Subject,
        /// Nanoseconds of the monotonic clock.
        at_ns: u64,
        /// What.
        what: What,
    },
    /// Something was not seen, or could not be told.
    Lost {
        /// Whose, if it concerns one tree.
        tree: Option<ProcessId>,
        /// Why.
        loss: Loss,
        /// How many sightings; 0 if nobody knows.
        count: u64,
    },
    /// Of a tree that ran already everybody was told of, and is seen from here on.
    Adopted {
        /// Whose.
        tree: ProcessId,
    },
    /// Nothing is left of a tree.
    Done {
        /// Whose.
        tree: ProcessId,
    },
}

impl Sighting {
    /// Takes over what another one tells, if that is more of the same loss.
    pub(super) fn absorb(&mut self, other: &Self) -> bool {
        let (Self::Lost { tree, loss, count }, Self::Lost { tree: of, loss: why, count: more }) =
            (self, other)
        else {
            return false;
        };
        let same = (&*tree, &*loss) == (of, why) && *count > 0 && *more > 0;
        if same {
            *count += more;
        }
        same
    }
}

/// What a process did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum What {
    /// It began.
    Forked {
        /// Whose child it was.
        parent: Key,
    },
    /// It was there before anybody looked.
    Adopted {
        /// Whose child it was then, if that one is seen too.
        parent: Option<Key>,
    },
    /// It executes another program from now on.
    Executed(Executed),
    /// A signal stopped it.
    Stopped {
        /// Which.
        signal: i32,
    },
    /// It goes on.
    Continued,
    /// It ended, with all its threads.
    Exited {
        /// What it passed to exit, if it called that.
        code: Option<u8>,
        /// The signal that ended it, if one did. Neither: nobody knows.
        signal: Option<i32>,
    },
    /// It did something to a file.
    File(File),
    /// It did something to the network.
    Network(Network),
}

impl What {
    /// The end that a wait status (`wait(2)`) tells of.
    pub fn ended_with(status: i32) -> Self {
        match status & 0x7f {
            0 => Self::Exited { code: Some((status >> 8).to_le_bytes()[0]), signal: None },
            signal => Self::Exited { code: None, signal: Some(signal) },
        }
    }
}

/// A program that was executed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Executed {
    /// The program, of a script its interpreter.
    pub path: Vec<u8>,
    /// All arguments, argv\[0\] first.
    pub argv: Vec<Vec<u8>>,
    /// Working directory.
    pub cwd: Vec<u8>,
    /// Not all of them fit.
    pub truncated: bool,
}

/// A file that was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct File {
    /// What was done.
    pub act: FileAct,
    /// Absolute where that is known, else as the process named it.
    pub path: Vec<u8>,
    /// The other path of a rename or a link.
    pub to: Option<Vec<u8>>,
    /// Of `open(2)`; 0 elsewhere.
    pub flags: u32,
    /// What came of it.
    pub outcome: Outcome,
}

/// What is done to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum FileAct {
    /// `open(2)`, `creat(2)`.
    Open,
    /// `unlink(2)`.
    Unlink,
    /// `rename(2)`.
    Rename,
    /// `mkdir(2)`.
    MakeFolder,
    /// `rmdir(2)`.
    RemoveFolder,
    /// `link(2)`.
    Link,
    /// `symlink(2)`: `path` is the link, `to` what it says.
    Symlink,
    /// `truncate(2)`.
    Truncate,
}

/// What came of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// It was tried; nobody looked how it went.
    Attempt,
    /// It worked.
    Done,
    /// It failed.
    Failed {
        /// Why.
        errno: i32,
    },
}

/// A call that concerns the network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Network {
    /// What was tried.
    pub act: NetworkAct,
    /// With which address; `listen(2)` has none.
    pub address: Option<Address>,
}

/// What is done with a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum NetworkAct {
    /// `connect(2)`.
    Connect,
    /// `bind(2)`.
    Bind,
    /// `listen(2)`.
    Listen,
    /// `sendto(2)`, `sendmsg(2)` or `sendmmsg(2)` with an address.
    Send,
}

/// Where to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Address {
    /// `ip(7)`, `ipv6(7)`.
    Inet(SocketAddr),
    /// `unix(7)`; begins with a NUL if it is abstract, empty if it has no name.
    Unix(Vec<u8>),
    /// Another family, by its number.
    Other(u16),
}

/// Why something is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Loss {
    /// No means that was allowed could be had.
    NoBackend,
    /// The sidecar did not take what was seen fast enough.
    Overflow,
    /// There were more processes, or trees, than a keeper watches.
    TooMany,
    /// It was over before anybody could look.
    TooShort,
    /// It ran already, and may not be traced.
    NotPermitted,
    /// It ran already, and somebody else traces it.
    Traced,
}

impl Loss {
    /// Stable name.
    pub fn name(self) -> &'static str {
        match self {
            Self::NoBackend => "no_backend",
            Self::Overflow => "overflow",
            Self::TooMany => "too_many",
            Self::TooShort => "too_short",
            Self::NotPermitted => "not_permitted",
            Self::Traced => "traced",
        }
    }
}
