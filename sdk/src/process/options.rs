//! Options of `exec` and `spawn`. A field exists only once it has its effect.

use std::{collections::BTreeMap, fmt};

use crate::stdio::StdinInput;

/// Code of the program that is given output.
pub(super) type OutputCallback = Box<dyn FnMut(&[u8]) + Send>;

/// What `exec` and `spawn` have in common: where a program starts and with which variables.
macro_rules! start_options {
    () => {
        /// Sets a variable over the VM's environment.
        #[must_use]
        pub fn env(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
            self.env.insert(key.into(), value.into());
            self
        }

        /// Sets variables over the VM's environment.
        #[must_use]
        pub fn envs(
            mut self,
            variables: impl IntoIterator<Item = (impl Into<String>, impl Into<String>)>,
        ) -> Self {
            self.env.extend(variables.into_iter().map(|(key, value)| (key.into(), value.into())));
            self
        }

        /// Working directory, absolute; the VM's own (`/workspace`) if not set.
        #[must_use]
        pub fn cwd(mut self, cwd: impl Into<String>) -> Self {
            self.cwd = Some(cwd.into());
            self
        }
    };
}

/// Options of [`AgentOs::exec`](crate::AgentOs::exec) and its siblings. Every one is optional.
#[non_exhaustive]
pub struct ExecOptions {
    pub(super) env: BTreeMap<String, String>,
    pub(super) cwd: Option<String>,
    pub(super) stdin: Option<StdinInput>,
    pub(super) on_stdout: Option<OutputCallback>,
    pub(super) on_stderr: Option<OutputCallback>,
    pub(super) capture_stdio: bool,
    pub(super) max_output_bytes: u64,
}

impl ExecOptions {
    /// Bytes one exec may capture over both streams: 16 MiB.
    pub const DEFAULT_MAX_OUTPUT_BYTES: u64 = 16 << 20;

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

    /// Whether output is kept for the result (default true). Without it only the callbacks see it.
    #[must_use]
    pub fn capture_stdio(mut self, capture: bool) -> Self {
        self.capture_stdio = capture;
        self
    }

    /// How many bytes may be captured over both streams; [`ExecOptions::DEFAULT_MAX_OUTPUT_BYTES`] if not set.
    /// Beyond it the tree is killed and the call fails with [`ClientError::CaptureLimit`](crate::ClientError).
    #[must_use]
    pub fn max_output_bytes(mut self, limit: u64) -> Self {
        self.max_output_bytes = limit;
        self
    }
}

impl Default for ExecOptions {
    fn default() -> Self {
        Self {
            env: BTreeMap::new(),
            cwd: None,
            stdin: None,
            on_stdout: None,
            on_stderr: None,
            capture_stdio: true,
            max_output_bytes: Self::DEFAULT_MAX_OUTPUT_BYTES,
        }
    }
}

impl fmt::Debug for ExecOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExecOptions")
            .field("env", &self.env)
            .field("cwd", &self.cwd)
            .field("capture_stdio", &self.capture_stdio)
            .field("max_output_bytes", &self.max_output_bytes)
            .finish_non_exhaustive()
    }
}

/// Options of [`AgentOs::spawn`](crate::AgentOs::spawn). Every one is optional.
#[derive(Default)]
#[non_exhaustive]
pub struct SpawnOptions {
    pub(super) env: BTreeMap<String, String>,
    pub(super) cwd: Option<String>,
    pub(super) on_stdout: Option<OutputCallback>,
    pub(super) on_stderr: Option<OutputCallback>,
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
}

impl fmt::Debug for SpawnOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpawnOptions").field("env", &self.env).field("cwd", &self.cwd).finish_non_exhaustive()
    }
}
