//! What an `exec` gives.

use std::{fmt, time::Duration};

use agentvm_wire::process::ExitCause;
use bytes::Bytes;

use super::capture::{Kept, Truncated};
use crate::process::exit::ExitStatus;

/// What [`AgentOs::exec`](crate::AgentOs::exec) and its siblings give: the command's end, and its output as text.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ExecResult<Text = String> {
    /// The command's exit status, or 128 + n for death by signal n.
    pub exit_code: i32,
    /// Standard output. As text, bytes that are not UTF-8 become U+FFFD (once per ill-formed sequence).
    pub stdout: Text,
    /// Standard error, likewise.
    pub stderr: Text,
    /// The signal's name, if one ended it.
    pub signal: Option<String>,
    /// Why it ended.
    pub cause: ExitCause,
    /// It was killed at its timeout; the output is what it wrote until then.
    pub timed_out: bool,
    /// More was written than is here.
    pub truncated: Option<Truncated>,
    /// From the call until the result, on the monotonic clock.
    pub duration: Duration,
}

/// The same with output as bytes, from [`AgentOs::exec_bytes`](crate::AgentOs::exec_bytes) and its siblings.
pub type ExecBytes = ExecResult<Bytes>;

/// The end of a command, with its output as it was kept.
pub(super) struct Finished {
    pub(super) status: ExitStatus,
    pub(super) stdout: Kept,
    pub(super) stderr: Kept,
    pub(super) duration: Duration,
}

impl Finished {
    pub(super) fn into_text(self) -> ExecResult {
        self.into_result(Kept::into_text)
    }

    pub(super) fn into_bytes(self) -> ExecBytes {
        self.into_result(|kept| {
            let dropped = kept.dropped;
            (kept.into_bytes(), dropped)
        })
    }

    fn into_result<Text>(self, read: fn(Kept) -> (Text, u64)) -> ExecResult<Text> {
        let ((stdout, dropped_out), (stderr, dropped_err)) = (read(self.stdout), read(self.stderr));
        let dropped_bytes = dropped_out + dropped_err;
        ExecResult {
            exit_code: self.status.code,
            stdout,
            stderr,
            signal: self.status.signal,
            cause: self.status.cause,
            timed_out: self.status.cause == ExitCause::Timeout,
            truncated: (dropped_bytes > 0).then_some(Truncated { dropped_bytes }),
            duration: self.duration,
        }
    }
}

impl<Text> fmt::Display for ExecResult<Text> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "exit code {}", self.exit_code)
    }
}
