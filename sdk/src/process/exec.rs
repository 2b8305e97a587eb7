//! `exec`: a command run to its end.

mod capture;
mod result;

use std::{
    ffi::OsStr,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Instant,
};

use agentvm_wire::process::{Execute, OutputMode, Signal, SignalTarget, StdinMode};
use futures_util::FutureExt as _;

use self::{
    capture::{Capture, Full},
    result::Finished,
};
use super::{
    command,
    entry::Entry,
    exit::Outcome,
    options::{ExecOptions, OutputCallback},
};
use crate::{
    agent_os::AgentOs,
    callback::guarded,
    error::ClientError,
    link::WantedStreams,
    stdio::{ByteStream, Output, OutputFrom, OutputStream, Overflow, StdinInput},
    vm::{self, Vm},
};

pub use capture::{OutputLimit, Truncated};
pub use result::{ExecBytes, ExecResult};

impl AgentOs {
    /// Runs a command line in `/bin/sh -c`, unaltered, and returns once it has ended and all it wrote is here.
    ///
    /// A status of 126 or 127 is the shell's own word for a command it could not run. Background children live on;
    /// their output is awaited only briefly (until none came for 50 ms, 1 s at most) and then goes nowhere.
    ///
    /// ```no_run
    /// # async fn example(vm: agentvm_sdk::AgentOs) -> Result<(), agentvm_sdk::ClientError> {
    /// use std::time::Duration;
    /// use agentvm_sdk::ExecOptions;
    ///
    /// let result = vm.exec("make test", ExecOptions::new().timeout(Duration::from_secs(60))).await?;
    /// if result.timed_out {
    ///     println!("stopped after {:?}; until then:\n{}", result.duration, result.stdout);
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// - An empty command, and options that no call can have, are `invalid_argument`; a command of 131 072 bytes or more
    ///   is `E2BIG`; [`TimingMitigation::Freeze`](crate::TimingMitigation) is `unsupported`.
    /// - [`ClientError::SpawnFailed`] where the working directory cannot be entered.
    /// - [`ClientError::CaptureLimit`]; [`ClientError::OutputLost`] where the end is known and the output is not whole.
    /// - [`ClientError::StartTimedOut`], [`ClientError::TerminationUnconfirmed`]: the timeout ran out before the start,
    ///   or the kill is not confirmed. A timeout that killed the command is an ordinary result with code 137.
    /// - [`ClientError::Disposed`], [`ClientError::VmFailed`], [`ClientError::SidecarExited`],
    ///   [`ClientError::Disconnected`] where the end will never be known.
    ///
    /// # Cancel safety
    /// Dropping the future kills the command with its whole tree.
    ///
    /// # Ordering
    /// Callbacks see each stream in order and all of it before the result; the order between the two is not kept.
    pub async fn exec(&self, command: &str, options: ExecOptions) -> Result<ExecResult, ClientError> {
        self.run_line(command, options)?.finish().await.map(Finished::into_text)
    }

    /// [`AgentOs::exec`] with output as bytes; errors, cancel safety and ordering as there.
    ///
    /// ```no_run
    /// # async fn example(vm: &agentvm_sdk::AgentOs) -> Result<(), agentvm_sdk::ClientError> {
    /// use agentvm_sdk::ExecOptions;
    ///
    /// let archive = vm.exec_bytes("tar -c .", ExecOptions::new()).await?.stdout;
    /// println!("{} bytes", archive.len());
    /// # Ok(()) }
    /// ```
    pub async fn exec_bytes(&self, command: &str, options: ExecOptions) -> Result<ExecBytes, ClientError> {
        self.run_line(command, options)?.finish().await.map(Finished::into_bytes)
    }

    /// Runs a program without a shell: every argument arrives verbatim. The fast path. A name without `/` is searched
    /// in the PATH of the call's own environment.
    ///
    /// ```no_run
    /// # async fn example(vm: &agentvm_sdk::AgentOs) -> Result<(), agentvm_sdk::ClientError> {
    /// use agentvm_sdk::ExecOptions;
    ///
    /// let result = vm.exec_argv("grep", ["-c", "it's $HOME", "notes.txt"], ExecOptions::new()).await?;
    /// match result.exit_code {
    ///     0 | 1 => println!("{} lines", result.stdout.trim()),
    ///     code => println!("grep failed with {code}: {}", result.stderr),
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// Errors, cancel safety and ordering as [`AgentOs::exec`], and [`ClientError::SpawnFailed`] where the program
    /// could not be started.
    #[doc(alias = "execFile")]
    pub async fn exec_argv(
        &self,
        command: &str,
        args: impl IntoIterator<Item = impl Into<String>>,
        options: ExecOptions,
    ) -> Result<ExecResult, ClientError> {
        self.run(command::text(command, args), options)?.finish().await.map(Finished::into_text)
    }

    /// [`AgentOs::exec_argv`] with output as bytes; everything else as there.
    pub async fn exec_argv_bytes(
        &self,
        command: &str,
        args: impl IntoIterator<Item = impl Into<String>>,
        options: ExecOptions,
    ) -> Result<ExecBytes, ClientError> {
        self.run(command::text(command, args), options)?.finish().await.map(Finished::into_bytes)
    }

    /// [`AgentOs::exec_argv_bytes`] for a program or arguments that are not UTF-8. Errors, cancel safety and ordering as
    /// [`AgentOs::exec_argv`].
    ///
    /// ```no_run
    /// # async fn example(vm: &agentvm_sdk::AgentOs) -> Result<(), agentvm_sdk::ClientError> {
    /// use std::{ffi::OsStr, os::unix::ffi::OsStrExt};
    /// use agentvm_sdk::ExecOptions;
    ///
    /// let latin1 = OsStr::from_bytes(b"caf\xe9.txt");
    /// let content = vm.exec_argv_os("cat", [latin1], ExecOptions::new()).await?.stdout;
    /// # let _ = content;
    /// # Ok(()) }
    /// ```
    pub async fn exec_argv_os(
        &self,
        command: impl AsRef<OsStr>,
        args: impl IntoIterator<Item = impl AsRef<OsStr>>,
        options: ExecOptions,
    ) -> Result<ExecBytes, ClientError> {
        self.run(command::bytes(command, args), options)?.finish().await.map(Finished::into_bytes)
    }

    fn run_line(&self, line: &str, options: ExecOptions) -> Result<Run, ClientError> {
        let execute = match &options.file_path {
            // Takes the place of the program, which is empty as the line must be.
            Some(_) => command::text(line, [""; 0]),
            None if line.is_empty() => return Err(ClientError::invalid("command", "command is empty")),
            None if line.contains('\0') => {
                return Err(ClientError::invalid("command", "command contains NUL"));
            }
            None => command::shell(line),
        };
        self.run(execute, options).map_err(|error| match error {
            // What the shell is given is the caller's command.
            ClientError::Rejected(mut rejection) if rejection.details.field.as_deref() == Some("args") => {
                rejection.details.field = Some("command".to_owned());
                ClientError::Rejected(rejection)
            }
            error => error,
        })
    }

    fn run(&self, mut execute: Execute, mut options: ExecOptions) -> Result<Run, ClientError> {
        options.validate()?;
        if let Some(path) = options.file_path.take() {
            command::replace_by_script(&mut execute, path)?;
        }
        Run::start(self.vm().clone(), execute, options)
    }
}

/// A command on its way to its end. Dropped before that, it kills the tree.
struct Run {
    begun: Instant,
    vm: Arc<Vm>,
    entry: Arc<Entry>,
    exit: futures_util::future::BoxFuture<'static, Outcome>,
    stdout: Reader,
    stderr: Reader,
    /// None where nothing is to be kept.
    capture: Option<Capture>,
}

/// One output being read by an exec.
struct Reader {
    which: OutputStream,
    stream: ByteStream,
    callback: Option<OutputCallback>,
    open: bool,
    lost: bool,
}

impl Run {
    fn start(vm: Arc<Vm>, mut execute: Execute, options: ExecOptions) -> Result<Self, ClientError> {
        let begun = Instant::now();
        let has_stdin = options.stdin.is_some();
        let timeout = options.start.timeout;
        options.start.apply(&mut execute);
        execute.process = vm.next_exec_id();
        execute.stdin = if has_stdin { StdinMode::Pipe } else { StdinMode::Null };
        (execute.stdout, execute.stderr) = (OutputMode::Pipe, OutputMode::Pipe);
        execute.drain = Some(vm::exec_drain());
        let wants = WantedStreams { stdin: has_stdin, stdout: true, stderr: true, events: 0 };
        let (on_stdout, on_stderr) = (options.on_stdout, options.on_stderr);
        let (entry, (stdout, stderr)) = vm.execute(execute, wants, timeout, |entry| {
            let stdout = Reader::new(entry, OutputStream::Stdout, on_stdout);
            let stderr = Reader::new(entry, OutputStream::Stderr, on_stderr);
            (stdout, stderr)
        })?;
        if let Some(StdinInput(input)) = options.stdin {
            // Taken whole: nothing is queued before it. A process that is gone already wants none.
            let _ = entry.write_stdin(input);
            entry.close_stdin();
        }
        let exit = entry.exit.clone();
        Ok(Self {
            begun,
            exit: async move { exit.wait().await }.boxed(),
            stdout,
            stderr,
            capture: options
                .capture_stdio
                .then(|| Capture::new(options.output_limit, options.max_output_bytes)),
            entry,
            vm,
        })
    }

    /// Awaits the end.
    async fn finish(mut self) -> Result<Finished, ClientError> {
        let outcome = std::future::poll_fn(|cx| self.poll(cx)).await;
        let (stdout, stderr) = self.capture.take().map(Capture::finish).unwrap_or_default();
        match outcome {
            Ok(status) => Ok(Finished { status, stdout, stderr, duration: self.begun.elapsed() }),
            Err(error) => Err(error.with_output(|| (stdout.into_bytes(), stderr.into_bytes()))),
        }
    }

    /// Output is read to its end first — both readers end with the process's own — and then the exit is awaited. The
    /// two take turns: a flood on one must not keep the other full.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Outcome> {
        let mut taken = true;
        while std::mem::take(&mut taken) {
            for reader in [&mut self.stdout, &mut self.stderr] {
                taken |= reader.take_chunk(cx, self.capture.as_mut())?;
            }
        }
        if self.stdout.open || self.stderr.open {
            return Poll::Pending;
        }
        let status = ready!(self.exit.poll_unpin(cx))?;
        let lost = [&self.stdout, &self.stderr].into_iter().find(|reader| reader.lost);
        Poll::Ready(
            lost.map_or(Ok(status), |reader| Err(ClientError::OutputLost { stream: reader.which.name() })),
        )
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        // A no-op once it has ended.
        self.entry.signal(Signal::KILL, SignalTarget::Tree);
        self.vm.forget(&self.entry);
    }
}

impl Reader {
    fn new(entry: &Arc<Entry>, which: OutputStream, callback: Option<OutputCallback>) -> Self {
        let stream = ByteStream::new(entry.clone(), which, OutputFrom::Start, Overflow::Wait).until_exit();
        Self { which, stream, callback, open: true, lost: false }
    }

    /// Takes what comes next, if it is there: callback first, then the capture, and only then does the cursor move.
    fn take_chunk(
        &mut self,
        cx: &mut Context<'_>,
        capture: Option<&mut Capture>,
    ) -> Result<bool, ClientError> {
        if !self.open {
            return Ok(false);
        }
        match self.stream.poll_peek(cx) {
            Poll::Ready(Some(Ok(Output::Data(bytes)))) => {
                if let Some(callback) = &mut self.callback
                    && guarded(self.which.name(), || callback(&bytes)).is_none()
                {
                    self.callback = None;
                }
                if let Some(capture) = capture {
                    let limit = capture.limit();
                    capture.take_chunk(self.which, &bytes).map_err(|Full { observed }| {
                        ClientError::capture_limit(self.which, observed, limit)
                    })?;
                }
                self.stream.advance(bytes.len());
                return Ok(true);
            }
            // A waiting cursor meets no gap.
            Poll::Ready(Some(Ok(Output::Gap { .. }) | Err(_))) => (self.open, self.lost) = (false, true),
            Poll::Ready(None) => self.open = false,
            Poll::Pending => {}
        }
        Ok(false)
    }
}
