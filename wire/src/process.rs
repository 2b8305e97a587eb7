//! Processes: starting, signalling, their end, and the VM's process table.

mod inspect;
mod signal;
mod validate;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    bytes64::{self, Bytes64},
    id::{ProcessId, StreamId},
    observer::{Observe, Told},
};

pub use inspect::{
    Cmdline, FileAccess, FileHandle, FileHandles, FileKind, ProcessRef, ReadCmdline, ReadFileHandles,
};
pub use signal::{Signal, UnknownSignal};
pub(crate) use validate::validate_env;
pub use validate::{MAX_STRING_BYTES, MAX_TOTAL_BYTES, MIN_MEMORY_LIMIT_BYTES};

/// Body of `execute`: starts a program, never a shell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Execute {
    /// Chosen by the client, unique for the VM's life.
    pub process: ProcessId,
    /// Program: a path, or a name searched in the PATH of the process's own environment.
    pub command: String,
    /// `command` where it is not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command_b64: Option<Bytes64>,
    /// argv\[0\] where it is not `command`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arg0: Option<String>,
    /// `command` is a script: run by its `#!` line, executable or not, or else by `/bin/sh`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub script: bool,
    /// Arguments after argv\[0\].
    #[serde(default)]
    pub args: Vec<String>,
    /// All of `args` where one of them is not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub args_b64: Option<Vec<Bytes64>>,
    /// Laid over the VM's environment.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Absolute; the VM's own if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// `cwd` where it is not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd_b64: Option<Bytes64>,
    /// Where standard input comes from.
    #[serde(default)]
    pub stdin: StdinMode,
    /// Where standard output goes.
    #[serde(default)]
    pub stdout: OutputMode,
    /// Where standard error goes.
    #[serde(default)]
    pub stderr: OutputMode,
    /// The streams behind every `pipe` above; ids rise over the session.
    #[serde(default)]
    pub streams: StdioStreams,
    /// How far the sender of each of these streams may be ahead, and its first limit: `window_bytes` of the session's
    /// limits if absent. To be the least one where all windows together would exceed `max_in_flight_bytes`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window_bytes: Option<u64>,
    /// Asks for `output_drained` after the exit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain: Option<Drain>,
    /// After so long, from the receipt of this request on, the tree is killed, or the start given up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// Once the tree has used so much CPU time it is killed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_time_limit_ms: Option<u64>,
    /// Bytes of memory the process and its descendants may use together; at least 4 MiB. Its largest process is killed
    /// when it is met.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_limit_bytes: Option<u64>,
    /// Where nothing can enforce `memory_limit_bytes` for all of them: hold each process to it for itself, rather than
    /// refuse.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allow_best_effort: bool,
    /// Tells what the process does, and as far as asked its descendants.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observe: Option<Observe>,
}

impl Execute {
    /// A start with nothing but a program: no arguments, no streams, everything else the VM's own.
    pub fn new(process: ProcessId, command: impl Into<String>) -> Self {
        Self {
            process,
            command: command.into(),
            command_b64: None,
            arg0: None,
            script: false,
            args: Vec::new(),
            args_b64: None,
            env: BTreeMap::new(),
            cwd: None,
            cwd_b64: None,
            stdin: StdinMode::Null,
            stdout: OutputMode::Null,
            stderr: OutputMode::Null,
            streams: StdioStreams::default(),
            window_bytes: None,
            drain: None,
            timeout_ms: None,
            cpu_time_limit_ms: None,
            memory_limit_bytes: None,
            allow_best_effort: false,
            observe: None,
        }
    }

    /// Every stream it opens.
    pub fn stream_ids(&self) -> impl Iterator<Item = StreamId> + use<> {
        self.streams.ids().chain(self.observe.as_ref().map(|observe| observe.stream))
    }

    /// The program, byte for byte.
    pub fn command_bytes(&self) -> &[u8] {
        bytes64::view(&self.command, self.command_b64.as_ref())
    }

    /// The arguments behind it, byte for byte.
    pub fn args_bytes(&self) -> impl Iterator<Item = &[u8]> {
        bytes64::view_all(&self.args, self.args_b64.as_deref())
    }
}

/// Where standard input comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum StdinMode {
    /// End of file at once.
    #[default]
    Null,
    /// A pipe fed by `streams.stdin`.
    Pipe,
}

/// Where an output goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum OutputMode {
    /// Discarded.
    #[default]
    Null,
    /// A pipe read into the stream of the same name.
    Pipe,
    /// Standard error only: the same descriptor as standard output, so that order between the two is kept.
    ToStdout,
}

/// Ids of the streams of one process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct StdioStreams {
    /// Client to sidecar.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stdin: Option<StreamId>,
    /// Sidecar to client.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stdout: Option<StreamId>,
    /// Sidecar to client.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stderr: Option<StreamId>,
}

impl StdioStreams {
    /// Those there are.
    pub fn ids(&self) -> impl Iterator<Item = StreamId> + use<> {
        [self.stdin, self.stdout, self.stderr].into_iter().flatten()
    }
}

/// How long the tail of descendants' output is awaited after the process's own exit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Drain {
    /// Re-armed by every chunk.
    pub quiet_ms: u64,
    /// In all.
    pub max_ms: u64,
}

/// Body of `process_started`; always sent before the process's `process_exited`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProcessStarted {
    /// The pid inside the VM.
    pub pid: u32,
    /// Wall clock, epoch milliseconds.
    pub started_at_ms: u64,
}

/// Body of the event `process_exited`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProcessExited {
    /// Which process.
    pub process: ProcessId,
    /// Its exit status, or 128 + n for death by signal n.
    pub exit_code: i32,
    /// The signal's name (`SIGKILL`), if one ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<String>,
    /// Why it ended.
    pub cause: ExitCause,
    /// A core was dumped.
    #[serde(default)]
    pub core_dumped: bool,
    /// Up to where each stream holds the process's own output: published exits wait for that much.
    #[serde(default)]
    pub end: StreamEnds,
    /// A descendant still holds an output open.
    #[serde(default)]
    pub output_open: bool,
    /// Observations that tell of this end: published exits wait for that event.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub told: Vec<Told>,
    /// CPU time in user mode, microseconds, with reaped children.
    pub user_us: u64,
    /// CPU time in the kernel, microseconds, with reaped children.
    pub sys_us: u64,
    /// Peak resident set, bytes.
    pub max_rss_bytes: u64,
    /// Wall clock, epoch milliseconds.
    pub exited_at_ms: u64,
}

/// Why a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ExitCause {
    /// By itself.
    Exited,
    /// By a signal.
    Signaled,
    /// Killed with its tree when `timeout_ms` had passed.
    Timeout,
    /// Killed with its tree when that had used up `cpu_time_limit_ms`.
    CpuLimit,
    /// Killed by the kernel when a memory limit was met.
    Oom,
    /// A cause this version does not know.
    #[serde(other)]
    Unknown,
}

/// Offsets, one per stream that exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct StreamEnds {
    /// Of stdout.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stdout: Option<u64>,
    /// Of stderr.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stderr: Option<u64>,
}

/// Body of the event `output_drained`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OutputDrained {
    /// Which process.
    pub process: ProcessId,
    /// Up to where each stream was read.
    pub end: StreamEnds,
}

/// Body of `signal_process`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SignalProcess {
    /// Which process.
    pub process: ProcessId,
    /// Which signal.
    pub signal: Signal,
    /// Whom it reaches.
    pub target: SignalTarget,
}

/// Whom a signal reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum SignalTarget {
    /// The process alone.
    Process,
    /// Its process group.
    Group,
    /// All its descendants too, whatever they did with sessions, groups and parents.
    Tree,
}

/// Body of `process_signaled`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProcessSignaled {
    /// How many processes were there to receive it; 0 if all had ended.
    pub delivered: u32,
}

/// Body of `process_snapshot`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct ProcessSnapshot {
    /// Continue behind this pid: the `next` of the page before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<u32>,
    /// How large a page may be, as JSON; 1 MiB if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_bytes: Option<u64>,
}

/// Body of `process_table`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct ProcessTable {
    /// Sorted by pid.
    pub rows: Vec<ProcessRow>,
    /// More rows follow behind this pid.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<u32>,
}

/// One process of the VM, as the kernel shows it (pids as seen in the VM).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProcessRow {
    /// The started process this one *is*, by its synthetic pid; absent for descendants and init.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<ProcessId>,
    /// The started process this one descends from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root: Option<ProcessId>,
    /// Process id.
    pub pid: u32,
    /// Parent; 0 for init.
    pub ppid: u32,
    /// Process group.
    pub pgid: u32,
    /// Session.
    pub sid: u32,
    /// `agentvm-sidecar`: who runs it.
    pub driver: String,
    /// The kernel's short name (`comm`); for an exited row the command as it was started.
    pub command: String,
    /// Arguments with argv\[0\], cut at 64 KiB or 4096 arguments.
    pub args: Vec<String>,
    /// All of `args` where one of them is not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub args_b64: Option<Vec<Bytes64>>,
    /// `args` was cut.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub args_truncated: bool,
    /// Working directory, where it can be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// What it does.
    pub status: ProcessStatus,
    /// For `exited`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// For `exited` by a signal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<String>,
    /// Wall clock, epoch milliseconds.
    pub started_at_ms: u64,
    /// Wall clock, epoch milliseconds; for `exited`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exited_at_ms: Option<u64>,
    /// Resident set, bytes.
    pub rss_bytes: u64,
    /// CPU time so far, microseconds.
    pub cpu_time_us: u64,
}

/// What a process does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the kernel's own words")]
pub enum ProcessStatus {
    Running,
    Stopped,
    Zombie,
    Exited,
}
