//! Options of `spawn`.

use std::{fmt, os::fd::OwnedFd, path::PathBuf, time::Duration};

use super::{OutputCallback, StartOptions, start_options};

/// Options of [`AgentOs::spawn`](crate::AgentOs::spawn). Every one is optional.
///
/// ```
/// use std::time::Duration;
/// use agentvm_sdk::{SpawnOptions, Stdio};
///
/// let options = SpawnOptions::new().stdio(Stdio::Inherit).timeout(Duration::from_secs(600));
/// ```
#[derive(Default)]
#[non_exhaustive]
pub struct SpawnOptions {
    pub(in crate::process) start: StartOptions,
    pub(in crate::process) on_stdout: Option<OutputCallback>,
    pub(in crate::process) on_stderr: Option<OutputCallback>,
    stdio: Stdio,
    stdin_fd: Option<OwnedFd>,
    pub(in crate::process) stdout_fd: Option<OwnedFd>,
    pub(in crate::process) stderr_fd: Option<OwnedFd>,
    no_stdin: bool,
}

/// What a process's standard streams are connected with. The guest sees pipes either way: no descriptor of this program
/// ever enters a VM.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Stdio {
    /// With nothing but the handles of this SDK.
    #[default]
    Pipe,
    /// With this program's own standard streams: what it reads goes to the process, what the process writes goes there.
    Inherit,
}

impl SpawnOptions {
    /// No options.
    pub fn new() -> Self {
        Self::default()
    }

    start_options!();

    /// Called with every chunk of standard output, on a thread of the SDK's blocking pool, one call at a time per
    /// process and in order. Nothing is skipped: while it runs the process feels back-pressure, and the exit is
    /// published only after it has returned from the process's last chunk. A panic is reported once and removes it.
    ///
    /// Only a process that was killed at its [`timeout`](Self::timeout) does not wait for it.
    #[must_use]
    pub fn on_stdout(mut self, callback: impl FnMut(&[u8]) + Send + 'static) -> Self {
        self.on_stdout = Some(Box::new(callback));
        self
    }

    /// The same for standard error.
    #[must_use]
    pub fn on_stderr(mut self, callback: impl FnMut(&[u8]) + Send + 'static) -> Self {
        self.on_stderr = Some(Box::new(callback));
        self
    }

    /// What the standard streams are connected with; [`Stdio::Pipe`] if not set.
    #[must_use]
    pub fn stdio(mut self, stdio: Stdio) -> Self {
        self.stdio = stdio;
        self
    }

    /// Relays what can be read from this descriptor to the process's standard input, and its end. Nothing is read ahead
    /// of what the process takes but what [`ProcessLimits::stdin_queue_bytes`](crate::ProcessLimits) and its pipe hold.
    #[must_use]
    #[doc(alias = "stdinFd")]
    pub fn stdin_fd(mut self, descriptor: OwnedFd) -> Self {
        self.stdin_fd = Some(descriptor);
        self
    }

    /// Relays the process's standard output to this descriptor; a writer that waits makes the process wait. Should
    /// writing fail, that is reported through `tracing`, and the rest of the output goes nowhere.
    #[must_use]
    #[doc(alias = "stdoutFd")]
    pub fn stdout_fd(mut self, descriptor: OwnedFd) -> Self {
        self.stdout_fd = Some(descriptor);
        self
    }

    /// The same for standard error.
    #[must_use]
    #[doc(alias = "stderrFd")]
    pub fn stderr_fd(mut self, descriptor: OwnedFd) -> Self {
        self.stderr_fd = Some(descriptor);
        self
    }

    /// Whether standard input stays open for writing (default true). Without it, it is at its end at once, and a write
    /// is [`StdinClosed`](crate::ClientError::StdinClosed).
    #[must_use]
    #[doc(alias = "streamStdin")]
    pub fn stream_stdin(mut self, stream: bool) -> Self {
        self.no_stdin = !stream;
        self
    }
}

impl fmt::Debug for SpawnOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpawnOptions")
            .field("start", &self.start)
            .field("stdio", &self.stdio)
            .field("stdin_fd", &self.stdin_fd)
            .field("stdout_fd", &self.stdout_fd)
            .field("stderr_fd", &self.stderr_fd)
            .field("no_stdin", &self.no_stdin)
            .finish_non_exhaustive()
    }
}
