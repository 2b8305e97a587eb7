//! Options of `exec` and `spawn`. A field exists only once it has its effect.

mod exec;
mod spawn;

use std::{collections::BTreeMap, os::unix::ffi::OsStringExt as _, path::PathBuf, time::Duration};

use agentvm_wire::{bytes64, message::MAX_INTEGER, process::Execute};

pub use exec::{ExecOptions, TimingMitigation};
pub use spawn::{SpawnOptions, Stdio};

/// Code of the program that is given output.
pub(super) type OutputCallback = Box<dyn FnMut(&[u8]) + Send>;

/// What `exec` and `spawn` have in common: where a program starts, with which variables, and how long it may take.
#[derive(Debug, Default)]
pub(super) struct StartOptions {
    env: BTreeMap<String, String>,
    cwd: Option<PathBuf>,
    pub(super) timeout: Option<Duration>,
    cpu_time_limit: Option<Duration>,
    memory_limit: Option<u64>,
    allow_best_effort: bool,
}

impl StartOptions {
    /// Writes them into what is asked of the sidecar.
    pub(super) fn apply(self, execute: &mut Execute) {
        execute.env = self.env;
        if let Some(cwd) = self.cwd {
            let (cwd, cwd_b64) = bytes64::split(cwd.into_os_string().into_vec());
            (execute.cwd, execute.cwd_b64) = (Some(cwd), cwd_b64);
        }
        execute.timeout_ms = self.timeout.map(millis);
        execute.cpu_time_limit_ms = self.cpu_time_limit.map(millis);
        execute.memory_limit_bytes = self.memory_limit;
        execute.allow_best_effort = self.allow_best_effort;
    }
}

/// Whole milliseconds, never less than was asked for; what is beyond the wire's integers is as good as for ever.
pub(crate) fn millis(duration: Duration) -> u64 {
    let millis = duration.as_nanos().div_ceil(1_000_000);
    u64::try_from(millis).map_or(MAX_INTEGER, |millis| millis.min(MAX_INTEGER))
}

/// The builder methods that set them.
macro_rules! start_options {
    () => {
        /// Sets a variable over the VM's environment. A name that is empty or holds `=`, and a NUL anywhere, make the
        /// call fail with `invalid_argument`.
        #[must_use]
        pub fn env(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
            self.start.env.insert(key.into(), value.into());
            self
        }

        /// Sets variables over the VM's environment, as [`env`](Self::env) does.
        #[must_use]
        pub fn envs(
            mut self,
            variables: impl IntoIterator<Item = (impl Into<String>, impl Into<String>)>,
        ) -> Self {
            self.start.env.extend(variables.into_iter().map(|(key, value)| (key.into(), value.into())));
            self
        }

        /// Working directory, absolute; the VM's own (`/workspace`) if not set. A relative one is `invalid_argument`;
        /// one that is missing, no directory or not allowed makes the start fail with step `cwd`.
        #[must_use]
        pub fn cwd(mut self, cwd: impl Into<PathBuf>) -> Self {
            self.start.cwd = Some(cwd.into());
            self
        }

        /// How long the command may take, counted by the sidecar on the monotonic clock from the moment it receives
        /// the call; no limit if not set. Then it is killed with its whole tree, and the outcome has the cause
        /// [`Timeout`](crate::ExitCause::Timeout). Zero expires at once; what is longer than the clock can tell never
        /// does. Fractions of a millisecond count as a whole one.
        ///
        /// A command that has not started by then fails with
        /// [`StartTimedOut`](crate::ClientError::StartTimedOut) and never starts; a kill that nobody confirms in time
        /// is [`TerminationUnconfirmed`](crate::ClientError::TerminationUnconfirmed).
        #[must_use]
        pub fn timeout(mut self, timeout: Duration) -> Self {
            self.start.timeout = Some(timeout);
            self
        }

        /// How much CPU time the command and all its descendants together may use, in user mode and in the kernel; no
        /// limit if not set. Then they are killed, and the outcome has the cause
        /// [`CpuLimit`](crate::ExitCause::CpuLimit). It is looked at at least ten times a second; what a descendant
        /// uses between the last look and its end is missed if nobody waits for it.
        #[must_use]
        #[doc(alias = "cpuTimeLimitMs")]
        pub fn cpu_time_limit(mut self, limit: Duration) -> Self {
            self.start.cpu_time_limit = Some(limit);
            self
        }

        /// How much memory the command and all its descendants together may use, bytes: at least 4 MiB; no limit but
        /// the VM's if not set. When it is met the kernel kills the largest of them; if that is the command itself, the
        /// outcome has the cause [`Oom`](crate::ExitCause::Oom). Where nothing can enforce it the call is refused with
        /// `unsupported`, which tells what is missing, unless [`allow_best_effort`](Self::allow_best_effort) is set.
        #[must_use]
        #[doc(alias = "memoryLimitBytes")]
        pub fn memory_limit(mut self, bytes: u64) -> Self {
            self.start.memory_limit = Some(bytes);
            self
        }

        /// Where nothing can enforce [`memory_limit`](Self::memory_limit) for the whole tree, hold each of its processes
        /// to it for itself (`RLIMIT_DATA`: an allocation beyond it fails) instead of refusing; false if not set.
        /// Whether that is so on a host is told by `memory_bytes` of
        /// [`isolation_report`](crate::AgentOs::isolation_report): it says what is missing.
        #[must_use]
        pub fn allow_best_effort(mut self, allow: bool) -> Self {
            self.start.allow_best_effort = allow;
            self
        }
    };
}

use start_options;
