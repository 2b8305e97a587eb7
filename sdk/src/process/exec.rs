//! `exec`: a command run to its end.

use std::{
    fmt,
    sync::Arc,
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};

use agentvm_wire::process::{Execute, ExitCause, OutputMode, SignalTarget, StdinMode};
use bytes::Bytes;
use futures_util::FutureExt as _;

use super::{
    entry::Entry,
    exit::Outcome,
    options::{ExecOptions, OutputCallback},
};
use crate::{
    agent_os::AgentOs,
    callback::guarded,
    error::ClientError,
    link::WantedStreams,
    stdio::{ByteStream, Output, OutputFrom, OutputStream, Overflow},
    vm::{self, Vm},
};

/// What [`AgentOs::exec`] and [`AgentOs::exec_argv`] give: the command's end and its output as text.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ExecResult {
    /// The command's exit status, or 128 + n for death by signal n.
    pub exit_code: i32,
    /// Standard output; bytes that are not UTF-8 become U+FFFD (once per ill-formed sequence).
    pub stdout: String,
    /// Standard error, likewise.
    pub stderr: String,
    /// The signal's name, if one ended it.
    pub signal: Option<String>,
    /// Why it ended.
    pub cause: ExitCause,
    /// From the call until the result, on the monotonic clock.
    pub duration: Duration,
}

/// The same with output as bytes, from [`AgentOs::exec_bytes`] and [`AgentOs::exec_argv_bytes`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExecBytes {
    /// The command's exit status, or 128 + n for death by signal n.
    pub exit_code: i32,
    /// Standard output.
    pub stdout: Bytes,
    /// Standard error.
    pub stderr: Bytes,
    /// The signal's name, if one ended it.
    pub signal: Option<String>,
    /// Why it ended.
    pub cause: ExitCause,
    /// From the call until the result, on the monotonic clock.
    pub duration: Duration,
}

impl From<ExecBytes> for ExecResult {
    fn from(bytes: ExecBytes) -> Self {
        Self {
            exit_code: bytes.exit_code,
            stdout: text(bytes.stdout),
            stderr: text(bytes.stderr),
            signal: bytes.signal,
            cause: bytes.cause,
            duration: bytes.duration,
        }
    }
}

fn text(bytes: Bytes) -> String {
    String::from_utf8(bytes.into())
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

impl AgentOs {
    /// Runs a command line in `sh -c`, unaltered, and returns once it has ended and all it wrote is here.
    ///
    /// A status of 126 or 127 is the shell's own word for a command it could not run. Background children live on;
    /// their output is awaited only briefly (1 s at most) and then goes nowhere.
    ///
    /// # Errors
    /// An empty command is `invalid_argument`; one of 131 072 bytes or more is `E2BIG`;
    /// [`ClientError::CaptureLimit`]; [`ClientError::OutputLost`] where the end is known and the output is not whole;
    /// [`ClientError::Disposed`], [`ClientError::VmFailed`], [`ClientError::SidecarExited`],
    /// [`ClientError::Disconnected`] where the end will never be known.
    ///
    /// # Cancel safety
    /// Dropping the future kills the command with its whole tree.
    ///
    /// # Ordering
    /// Callbacks see each stream in order and all of it before the result; the order between the two is not kept.
    pub async fn exec(&self, command: &str, options: ExecOptions) -> Result<ExecResult, ClientError> {
        self.exec_bytes(command, options).await.map(ExecResult::from)
    }

    /// [`AgentOs::exec`] with output as bytes.
    pub async fn exec_bytes(&self, command: &str, options: ExecOptions) -> Result<ExecBytes, ClientError> {
        if command.is_empty() {
            return Err(ClientError::invalid("command", "command is empty"));
        }
        self.exec_argv_bytes("sh", ["-c", command], options).await
    }

    /// Runs a program without a shell: every argument arrives verbatim. The fast path.
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
        self.exec_argv_bytes(command, args, options).await.map(ExecResult::from)
    }

    /// [`AgentOs::exec_argv`] with output as bytes.
    pub async fn exec_argv_bytes(
        &self,
        command: &str,
        args: impl IntoIterator<Item = impl Into<String>>,
        options: ExecOptions,
    ) -> Result<ExecBytes, ClientError> {
        let begun = Instant::now();
        let args = args.into_iter().map(Into::into).collect();
        let mut run = Run::start(self.vm().clone(), command, args, options)?;
        let outcome = std::future::poll_fn(|cx| run.poll(cx)).await;
        let (stdout, stderr) = run.capture.take();
        let status = outcome?;
        Ok(ExecBytes {
            exit_code: status.code,
            stdout,
            stderr,
            signal: status.signal,
            cause: status.cause,
            duration: begun.elapsed(),
        })
    }
}

/// A command on its way to its end. Dropped before that, it kills the tree.
struct Run {
    vm: Arc<Vm>,
    entry: Arc<Entry>,
    exit: futures_util::future::BoxFuture<'static, Outcome>,
    stdout: Reader,
    stderr: Reader,
    capture: Capture,
}

/// One output being read by an exec.
struct Reader {
    name: &'static str,
    stream: ByteStream,
    callback: Option<OutputCallback>,
    open: bool,
    lost: bool,
}

impl Run {
    fn start(
        vm: Arc<Vm>,
        command: &str,
        args: Vec<String>,
        options: ExecOptions,
    ) -> Result<Self, ClientError> {
        let execute = Execute {
            args,
            env: options.env,
            cwd: options.cwd,
            stdin: if options.stdin.is_some() { StdinMode::Pipe } else { StdinMode::Null },
            stdout: OutputMode::Pipe,
            stderr: OutputMode::Pipe,
            drain: Some(vm::exec_drain()),
            ..Execute::new(vm.next_exec_id(), command)
        };
        let wants = WantedStreams { stdin: options.stdin.is_some(), stdout: true, stderr: true };
        let (on_stdout, on_stderr) = (options.on_stdout, options.on_stderr);
        let (entry, (stdout, stderr)) = vm.execute(execute, wants, |entry| {
            let stdout = Reader::new(entry, "stdout", OutputStream::Stdout, on_stdout);
            let stderr = Reader::new(entry, "stderr", OutputStream::Stderr, on_stderr);
            (stdout, stderr)
        })?;
        if let Some(input) = options.stdin {
            // Taken whole: nothing is queued before it. A process that is gone already wants none.
            let _ = entry.write_stdin(input.0);
            entry.close_stdin();
        }
        let exit = entry.exit.clone();
        Ok(Self {
            exit: async move { exit.wait().await }.boxed(),
            stdout,
            stderr,
            capture: Capture::new(options.capture_stdio, options.max_output_bytes),
            entry,
            vm,
        })
    }

    /// Output is read to its end first — both readers end with the process's own — and then the exit is awaited.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Outcome> {
        for reader in [&mut self.stdout, &mut self.stderr] {
            if let Err(error) = reader.poll(cx, &mut self.capture) {
                return Poll::Ready(Err(error));
            }
        }
        if self.stdout.open || self.stderr.open {
            return Poll::Pending;
        }
        let status = ready!(self.exit.poll_unpin(cx))?;
        let lost = [&self.stdout, &self.stderr].into_iter().find(|reader| reader.lost);
        Poll::Ready(lost.map_or(Ok(status), |reader| Err(ClientError::OutputLost { stream: reader.name })))
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        // A no-op once it has ended.
        self.entry.signal("SIGKILL", SignalTarget::Tree);
        self.vm.forget(&self.entry);
    }
}

impl Reader {
    fn new(
        entry: &Arc<Entry>,
        name: &'static str,
        which: OutputStream,
        callback: Option<OutputCallback>,
    ) -> Self {
        let stream = ByteStream::new(entry.clone(), which, OutputFrom::Start, Overflow::Wait).until_exit();
        Self { name, stream, callback, open: true, lost: false }
    }

    /// Takes what is there: callback first, then the capture, and only then does the cursor move.
    fn poll(&mut self, cx: &mut Context<'_>, capture: &mut Capture) -> Result<(), ClientError> {
        while self.open {
            match self.stream.poll_peek(cx) {
                Poll::Ready(Some(Ok(Output::Data(bytes)))) => {
                    if let Some(callback) = &mut self.callback
                        && guarded(self.name, || callback(&bytes)).is_none()
                    {
                        self.callback = None;
                    }
                    capture.take_chunk(self.name, &bytes)?;
                    self.stream.advance(bytes.len());
                }
                // A waiting cursor meets no gap.
                Poll::Ready(Some(Ok(Output::Gap { .. }) | Err(_))) => (self.open, self.lost) = (false, true),
                Poll::Ready(None) => self.open = false,
                Poll::Pending => break,
            }
        }
        Ok(())
    }
}

/// What is kept of the output, and how much may be.
struct Capture {
    enabled: bool,
    limit: u64,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
}

impl Capture {
    fn new(enabled: bool, limit: u64) -> Self {
        Self { enabled, limit, stdout: Vec::new(), stderr: Vec::new() }
    }

    fn take_chunk(&mut self, stream: &'static str, bytes: &[u8]) -> Result<(), ClientError> {
        if !self.enabled {
            return Ok(());
        }
        let captured = (self.stdout.len() + self.stderr.len()) as u64;
        let observed = captured + bytes.len() as u64;
        let room = usize::try_from(self.limit - captured).unwrap_or(usize::MAX).min(bytes.len());
        let kept = if stream == "stdout" { &mut self.stdout } else { &mut self.stderr };
        kept.extend_from_slice(&bytes[..room]);
        if observed > self.limit {
            let (stdout, stderr) = self.take();
            return Err(ClientError::CaptureLimit { stream, observed, limit: self.limit, stdout, stderr });
        }
        Ok(())
    }

    fn take(&mut self) -> (Bytes, Bytes) {
        (std::mem::take(&mut self.stdout).into(), std::mem::take(&mut self.stderr).into())
    }
}

impl fmt::Display for ExecResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "exit code {}", self.exit_code)
    }
}
