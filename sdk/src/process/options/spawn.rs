//! Options of `spawn`.

use std::{fmt, os::fd::OwnedFd, path::PathBuf, time::Duration};

use super::{OutputCallback, StartOptions, start_options};
use crate::{error::ClientError, observer::ObserverConfig, process::relay::Descriptors};

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
    descriptors: Descriptors,
    pub(in crate::process) no_stdin: bool,
    pub(in crate::process) observe: Option<ObserverConfig>,
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
    #[doc(alias = "onStdout")]
    pub fn on_stdout(mut self, callback: impl FnMut(&[u8]) + Send + 'static) -> Self {
        self.on_stdout = Some(Box::new(callback));
        self
    }

    /// The same for standard error.
    #[must_use]
    #[doc(alias = "onStderr")]
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
        self.descriptors.stdin = Some(descriptor);
        self
    }

    /// Relays the process's standard output to this descriptor; a descriptor that takes nothing makes the
    /// process wait, as far as it writes there. Should writing fail, that is reported through `tracing`, and the rest of
    /// the output goes nowhere.
    #[must_use]
    #[doc(alias = "stdoutFd")]
    pub fn stdout_fd(mut self, descriptor: OwnedFd) -> Self {
        self.descriptors.stdout = Some(descriptor);
        self
    }

    /// The same for standard error.
    #[must_use]
    #[doc(alias = "stderrFd")]
    pub fn stderr_fd(mut self, descriptor: OwnedFd) -> Self {
        self.descriptors.stderr = Some(descriptor);
        self
    }

    /// Whether standard input stays open for writing (default true). Without it, it is at its end at once, and a write
    /// is [`StdinClosed`](crate::ClientError::StdinClosed); together with [`stdin_fd`](Self::stdin_fd) it is
    /// `invalid_argument`.
    #[must_use]
    #[doc(alias = "streamStdin")]
    pub fn stream_stdin(mut self, stream: bool) -> Self {
        self.no_stdin = !stream;
        self
    }

    /// Observes the process and its descendants: [`Process::observer`](crate::Process::observer) reads what they do. A
    /// config without categories observes nothing; one of another scope than a process tree is refused
    /// (`invalid_argument`).
    #[must_use]
    pub fn observe(mut self, config: ObserverConfig) -> Self {
        self.observe = Some(config).filter(|config| !config.categories().is_empty());
        self
    }

    /// The descriptors that are to be relayed. Refuses what contradicts itself.
    pub(in crate::process) fn take_descriptors(&mut self) -> Result<Descriptors, ClientError> {
        self.observe.as_ref().map_or(Ok(()), ObserverConfig::check_for_process)?;
        let mut descriptors = std::mem::take(&mut self.descriptors);
        if self.no_stdin && descriptors.stdin.is_some() {
            return Err(ClientError::invalid("stream_stdin", "standard input is both given and not wanted"));
        }
        if self.stdio == Stdio::Inherit {
            descriptors = descriptors.or_inherited()?;
        }
        if self.no_stdin {
            descriptors.stdin = None;
        }
        Ok(descriptors)
    }
}

impl fmt::Debug for SpawnOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpawnOptions")
            .field("start", &self.start)
            .field("stdio", &self.stdio)
            .field("descriptors", &self.descriptors)
            .field("no_stdin", &self.no_stdin)
            .field("observe", &self.observe)
            .finish_non_exhaustive()
    }
}
