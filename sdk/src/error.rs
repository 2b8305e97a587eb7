//! [`ClientError`]: everything that can go wrong, as one typed value.

use std::{fmt, io, path::PathBuf, sync::Arc, time::Duration};

use agentvm_wire::{
    error::{Code, Rejection},
    message::Response,
};
use bytes::Bytes;

use crate::stdio::OutputStream;

/// Why a call failed. Cheap to clone: every waiter of a lost connection gets the same first cause.
///
/// Texts kept from the TypeScript SDK: `Process not found: PID`, `Path must be absolute: PATH`.
///
/// ```no_run
/// # async fn example(vm: agentvm_sdk::AgentOs) {
/// use agentvm_sdk::{ClientError, ExecOptions};
///
/// match vm.exec_argv("rg", ["TODO"], ExecOptions::new()).await {
///     Ok(result) => println!("{}", result.stdout),
///     Err(ClientError::SpawnFailed { code, .. }) if code.as_str() == "ENOENT" => println!("no rg in there"),
///     Err(error) => println!("{}: {error}", error.code()),
/// }
/// # }
/// ```
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// No sidecar binary was found; lists the places looked at.
    #[error("no agentvm-sidecar found; looked at {}", Places(places))]
    SidecarNotFound {
        /// In the order they were tried, each with why it was passed over.
        places: Vec<(PathBuf, &'static str)>,
    },
    /// The sidecar could not be started, or ended before it answered `hello`.
    #[error("sidecar did not start ({status}){}", Tail(stderr_tail))]
    SidecarLaunch {
        /// How it ended, or the system's error.
        status: String,
        /// The last of what it wrote to standard error.
        stderr_tail: String,
    },
    /// This process is itself a launched sidecar that ran on into the program's `main`.
    #[error(
        "this process was launched as a sidecar: call agentvm_sidecar::run_if_requested() first in main, \
         or agentvm_sidecar::before_main!() in test binaries and under #[tokio::main]"
    )]
    HookMissing,
    /// Client and sidecar were built from different message definitions.
    #[error("sidecar build {sidecar} does not match client build {client}")]
    BuildMismatch {
        /// This crate's build.
        client: String,
        /// The sidecar's.
        sidecar: String,
    },
    /// The launched sidecar ended; everything that waited for it fails with this.
    #[error("sidecar exited ({status}){}", Tail(stderr_tail))]
    SidecarExited {
        /// How it ended, as far as known.
        status: String,
        /// The last of what it wrote to standard error.
        stderr_tail: String,
    },
    /// The connection ended: by the peer, by an error, or because a protocol rule was broken.
    #[error("disconnected: {reason}")]
    Disconnected {
        /// What happened first.
        reason: String,
        /// The system's error, where there was one.
        #[source]
        source: Option<Arc<io::Error>>,
    },
    /// The VM was disposed of, by `dispose` or because its last handle was dropped.
    #[error("VM is disposed")]
    Disposed,
    /// The VM ended by itself; its processes are gone.
    #[error("VM failed: {reason}")]
    VmFailed {
        /// As the sidecar tells it.
        reason: String,
    },
    /// The sidecar refused a request.
    #[error("{0}")]
    Rejected(Rejection),
    /// No process of this handle has the pid.
    #[error("Process not found: {0}")]
    ProcessNotFound(u32),
    /// A program could not be started.
    #[error("{message}")]
    SpawnFailed {
        /// `ENOENT`, `EACCES`, `E2BIG`, …
        code: Code,
        /// `exec`, `cwd`, …
        step: String,
        /// Names the program or the directory.
        message: String,
    },
    /// A command's timeout ran out before it was started; it never starts.
    #[error("{command}: not started before its timeout")]
    StartTimedOut {
        /// The program.
        command: String,
    },
    /// A command was to be killed at its timeout, and nothing has confirmed that it was.
    #[error("killed at its timeout, but its end is not confirmed after {waited:?} more")]
    TerminationUnconfirmed {
        /// How long the confirmation was awaited: [`ProcessLimits::kill_confirmation`](crate::ProcessLimits).
        waited: Duration,
        /// What an `exec` had captured of standard output.
        stdout: Bytes,
        /// What it had captured of standard error.
        stderr: Bytes,
    },
    /// A write that did not fit behind what is queued already; nothing of it was taken.
    #[error("stdin holds {queued} queued bytes, limit is {limit}")]
    StdinFull {
        /// Bytes waiting.
        queued: u64,
        /// How many may wait.
        limit: u64,
    },
    /// The process ended, closed its standard input, or has none; or `close` came before.
    #[error("stdin is closed")]
    StdinClosed,
    /// A bounded registry is full of live entries.
    #[error("{name} is {observed}, limit is {limit}")]
    ResourceLimit {
        /// Which.
        name: &'static str,
        /// How many there may be.
        limit: u64,
        /// How many there are.
        observed: u64,
    },
    /// One output of an `exec` broke before its end, though the command's own end is known.
    #[error("exec {stream} is lost: what follows is unknown")]
    OutputLost {
        /// `stdout` or `stderr`.
        stream: &'static str,
    },
    /// `exec` captured more than it may; the tree was killed.
    #[error("exec {stream} capture is {observed} bytes, limit is {limit}")]
    CaptureLimit {
        /// The stream whose chunk crossed the limit.
        stream: &'static str,
        /// Bytes both streams together had delivered.
        observed: u64,
        /// How many may be captured.
        limit: u64,
        /// What was captured of standard output.
        stdout: Bytes,
        /// What was captured of standard error.
        stderr: Bytes,
    },
}

impl ClientError {
    /// The stable wire code nearest to this error.
    pub fn code(&self) -> Code {
        match self {
            Self::Rejected(rejection) => rejection.code.clone(),
            Self::SpawnFailed { code, .. } => code.clone(),
            Self::ProcessNotFound(_) => Code::NOT_FOUND,
            Self::StartTimedOut { .. } | Self::TerminationUnconfirmed { .. } => Code::DEADLINE_EXCEEDED,
            Self::StdinFull { .. } | Self::ResourceLimit { .. } => Code::RESOURCE_EXHAUSTED,
            Self::CaptureLimit { .. } => Code::TOO_LARGE,
            Self::StdinClosed => Code::EPIPE,
            Self::OutputLost { .. } => Code::EIO,
            Self::BuildMismatch { .. } => Code::VERSION_MISMATCH,
            Self::Disposed | Self::HookMissing | Self::SidecarNotFound { .. } => Code::FAILED_PRECONDITION,
            Self::SidecarLaunch { .. }
            | Self::SidecarExited { .. }
            | Self::Disconnected { .. }
            | Self::VmFailed { .. } => Code::INTERNAL,
        }
    }

    /// The sidecar refused an argument; names the field.
    pub(crate) fn invalid(field: &str, message: impl Into<String>) -> Self {
        Self::Rejected(Rejection::invalid(field, message))
    }

    /// An exec has captured too much; what it has is added by [`ClientError::with_output`].
    pub(crate) fn capture_limit(stream: OutputStream, observed: u64, limit: u64) -> Self {
        let (stdout, stderr) = (Bytes::new(), Bytes::new());
        Self::CaptureLimit { stream: stream.name(), observed, limit, stdout, stderr }
    }

    /// Adds what an exec had captured, where the error carries that.
    pub(crate) fn with_output(mut self, output: impl FnOnce() -> (Bytes, Bytes)) -> Self {
        if let Self::CaptureLimit { stdout, stderr, .. }
        | Self::TerminationUnconfirmed { stdout, stderr, .. } = &mut self
        {
            (*stdout, *stderr) = output();
        }
        self
    }

    /// A request got an answer that belongs to another.
    pub(crate) fn unexpected(request: &str, answer: &Response) -> Self {
        Self::disconnected(format!("{request} was answered with {}", answer.name()))
    }

    pub(crate) fn disconnected(reason: impl Into<String>) -> Self {
        Self::Disconnected { reason: reason.into(), source: None }
    }
}

struct Places<'a>(&'a [(PathBuf, &'static str)]);

impl fmt::Display for Places<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (path, why)) in self.0.iter().enumerate() {
            write!(f, "{}{} ({why})", if i == 0 { "" } else { ", " }, path.display())?;
        }
        Ok(())
    }
}

struct Tail<'a>(&'a str);

impl fmt::Display for Tail<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(f, ": {}", self.0.trim_end()) }
    }
}
