//! How a process ended.

use std::{sync::Arc, time::Duration};

use agentvm_wire::process::{ExitCause, ProcessExited};
use tokio::sync::watch;

use crate::error::ClientError;

/// A process's end, or why it will never be known.
pub(crate) type Outcome = Result<ExitStatus, ClientError>;

/// How a process ended. Never invented: what is not known is a [`ClientError`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExitStatus {
    /// Its exit status, or 128 + n for death by signal n.
    pub code: i32,
    /// The signal's name (`SIGKILL`), if one ended it.
    pub signal: Option<String>,
    /// Why it ended.
    pub cause: ExitCause,
    /// A core was dumped.
    pub core_dumped: bool,
    /// CPU time in user mode, with reaped children.
    pub user_time: Duration,
    /// CPU time in the kernel, with reaped children.
    pub system_time: Duration,
    /// Peak resident set, bytes.
    pub max_rss_bytes: u64,
    /// Wall clock, epoch milliseconds.
    pub exited_at_ms: u64,
}

impl ExitStatus {
    /// Whether it exited by itself with status 0.
    pub fn success(&self) -> bool {
        self.code == 0 && self.signal.is_none()
    }
}

impl From<ProcessExited> for ExitStatus {
    fn from(exited: ProcessExited) -> Self {
        Self {
            code: exited.exit_code,
            signal: exited.signal,
            cause: exited.cause,
            core_dumped: exited.core_dumped,
            user_time: Duration::from_micros(exited.user_us),
            system_time: Duration::from_micros(exited.sys_us),
            max_rss_bytes: exited.max_rss_bytes,
            exited_at_ms: exited.exited_at_ms,
        }
    }
}

/// The outcome of one process: published once, kept for every later reader.
#[derive(Debug, Clone)]
pub(crate) struct Exit(Arc<watch::Sender<Option<Outcome>>>);

impl Exit {
    pub(crate) fn new() -> Self {
        Self(Arc::new(watch::Sender::new(None)))
    }

    /// Keeps the outcome whether or not anybody waits (`send` would drop it if nobody does).
    pub(crate) fn publish(&self, outcome: Outcome) {
        self.0.send_replace(Some(outcome));
    }

    pub(crate) fn get(&self) -> Option<Outcome> {
        self.0.borrow().clone()
    }

    /// Resolves once the outcome is published. Cancel safe.
    pub(crate) async fn wait(&self) -> Outcome {
        let mut receiver = self.0.subscribe();
        let published = receiver.wait_for(Option::is_some).await.expect("self holds the sender");
        published.clone().expect("waited for")
    }
}
