//! Options of `exec`.

use std::{fmt, path::PathBuf, time::Duration};

use agentvm_wire::error::{Code, Rejection};

use super::{OutputCallback, StartOptions, start_options};
use crate::{error::ClientError, process::exec::OutputLimit, stdio::StdinInput};

/// Options of [`AgentOs::exec`](crate::AgentOs::exec) and its siblings. Every one is optional.
///
/// ```
/// use std::time::Duration;
/// use agentvm_sdk::{ExecOptions, OutputLimit};
///
/// let options = ExecOptions::new()
///     .env("LC_ALL", "C")
///     .cwd("/tmp")
///     .stdin("one line\n")
///     .timeout(Duration::from_secs(30))
///     .max_output_bytes(100_000)
///     .output_limit(OutputLimit::KeepHeadAndTail);
/// ```
#[non_exhaustive]
pub struct ExecOptions {
    pub(in crate::process) start: StartOptions,
    pub(in crate::process) stdin: Option<StdinInput>,
    pub(in crate::process) on_stdout: Option<OutputCallback>,
    pub(in crate::process) on_stderr: Option<OutputCallback>,
    pub(in crate::process) capture_stdio: bool,
    pub(in crate::process) max_output_bytes: u64,
    pub(in crate::process) output_limit: OutputLimit,
    pub(in crate::process) file_path: Option<PathBuf>,
    timing_mitigation: TimingMitigation,
}

/// Whether a guest may measure time exactly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum TimingMitigation {
    /// It may.
    #[default]
    Off,
    /// Its clocks stand still. Linux cannot do that: the call is refused as `unsupported`.
    Freeze,
}

impl ExecOptions {
    /// Bytes one exec may capture over both streams unless [`ExecOptions::max_output_bytes`] says otherwise: 16 MiB.
    pub const DEFAULT_MAX_OUTPUT_BYTES: u64 = 16 << 20;
    /// What that may be raised to: 1 GiB.
    pub const MAX_OUTPUT_BYTES: u64 = 1 << 30;

    /// No options.
    pub fn new() -> Self {
        Self::default()
    }

    start_options!();

    /// Exactly these bytes and then the end; without it standard input is at its end at once.
    #[must_use]
    pub fn stdin(mut self, input: impl Into<StdinInput>) -> Self {
        self.stdin = Some(input.into());
        self
    }

    /// Called with every chunk of standard output as it comes, inside the exec future. It sees everything, captured
    /// or not; while it runs the process feels back-pressure. A panic is reported once and removes it.
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

    /// Whether output is kept for the result (default true). Without it only the callbacks see it.
    #[must_use]
    #[doc(alias = "captureStdio")]
    pub fn capture_stdio(mut self, capture: bool) -> Self {
        self.capture_stdio = capture;
        self
    }

    /// How many bytes may be captured over both streams; [`ExecOptions::DEFAULT_MAX_OUTPUT_BYTES`] if not set, at most
    /// [`ExecOptions::MAX_OUTPUT_BYTES`], else the call fails with `invalid_argument`. What happens beyond it is
    /// [`ExecOptions::output_limit`]'s to say.
    #[must_use]
    pub fn max_output_bytes(mut self, limit: u64) -> Self {
        self.max_output_bytes = limit;
        self
    }

    /// What happens when more is written than may be captured; [`OutputLimit::Kill`] if not set.
    #[must_use]
    pub fn output_limit(mut self, policy: OutputLimit) -> Self {
        self.output_limit = policy;
        self
    }

    /// Runs this script of the VM instead of a command: by its `#!` line, or with `/bin/sh` if it has none; it need not
    /// be executable. The command must then be empty, else the call fails with `invalid_argument`; arguments of
    /// [`AgentOs::exec_argv`](crate::AgentOs::exec_argv) go to the script. A path that is not absolute begins at the
    /// working directory; one that cannot be run fails with [`SpawnFailed`](crate::ClientError::SpawnFailed).
    #[must_use]
    #[doc(alias = "filePath")]
    pub fn file_path(mut self, path: impl Into<PathBuf>) -> Self {
        self.file_path = Some(path.into());
        self
    }

    /// Whether the guest may measure time exactly; [`TimingMitigation::Off`] if not set.
    #[must_use]
    #[doc(alias = "timingMitigation")]
    pub fn timing_mitigation(mut self, mitigation: TimingMitigation) -> Self {
        self.timing_mitigation = mitigation;
        self
    }

    /// Refuses what cannot be had.
    pub(in crate::process) fn validate(&self) -> Result<(), ClientError> {
        if self.max_output_bytes > Self::MAX_OUTPUT_BYTES {
            let message =
                format!("max_output_bytes is {}, limit is {}", self.max_output_bytes, Self::MAX_OUTPUT_BYTES);
            return Err(ClientError::invalid("max_output_bytes", message));
        }
        if self.timing_mitigation == TimingMitigation::Freeze {
            let mut rejection =
                Rejection::new(Code::UNSUPPORTED, "Linux cannot freeze the clocks of a process");
            rejection.details.field = Some("timing_mitigation".to_owned());
            return Err(ClientError::Rejected(rejection));
        }
        Ok(())
    }
}

impl Default for ExecOptions {
    fn default() -> Self {
        Self {
            start: StartOptions::default(),
            stdin: None,
            on_stdout: None,
            on_stderr: None,
            capture_stdio: true,
            max_output_bytes: Self::DEFAULT_MAX_OUTPUT_BYTES,
            output_limit: OutputLimit::default(),
            file_path: None,
            timing_mitigation: TimingMitigation::default(),
        }
    }
}

impl fmt::Debug for ExecOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExecOptions")
            .field("start", &self.start)
            .field("capture_stdio", &self.capture_stdio)
            .field("max_output_bytes", &self.max_output_bytes)
            .field("output_limit", &self.output_limit)
            .field("file_path", &self.file_path)
            .field("timing_mitigation", &self.timing_mitigation)
            .finish_non_exhaustive()
    }
}
