//! `spawn`: a program started and followed while it runs.

use std::{
    ffi::OsStr,
    future::poll_fn,
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use agentvm_wire::process::{Execute, OutputMode, StdinMode};
use tokio::io::AsyncWrite;

use super::{
    command,
    entry::Entry,
    exit::ExitStatus,
    options::SpawnOptions,
    registry,
    relay::{self, Taker},
};
use crate::{
    agent_os::AgentOs,
    callback::{self, Subscription, guarded},
    error::ClientError,
    link::WantedStreams,
    observer::ObserverSubscriber,
    stdio::{ByteStream, Output, OutputEvents, OutputFrom, OutputPage, OutputStream, Overflow, StdinInput},
};

/// A spawned process. Cheap to clone; dropping it leaves the process running, holding it keeps its record.
#[derive(Debug, Clone)]
pub struct Process {
    pub(super) entry: Arc<Entry>,
    _pin: Arc<()>,
}

impl AgentOs {
    /// Starts a program, without a shell, and returns at once: needs no runtime. What is done to the process next —
    /// a write, a signal, a subscription — takes effect in that order, before the start too.
    ///
    /// A program that cannot be started shows it later: `wait` and exit handlers get
    /// [`ClientError::SpawnFailed`], the message also goes to standard error, and the entry stays with a failure and
    /// no exit code.
    ///
    /// ```no_run
    /// # async fn example(vm: &agentvm_sdk::AgentOs) -> Result<(), agentvm_sdk::ClientError> {
    /// use agentvm_sdk::{Output, SpawnOptions};
    ///
    /// let server = vm.spawn("python3", ["-m", "http.server"], SpawnOptions::new().cwd("/workspace"))?;
    /// let mut log = server.stderr();
    /// if let Some(Ok(Output::Data(bytes))) = log.next().await {
    ///     println!("{}", String::from_utf8_lossy(&bytes));
    /// }
    /// server.stop();
    /// println!("it ended with {}", server.wait().await?.code);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// `invalid_argument` and `E2BIG` for what could never start; [`ClientError::ResourceLimit`] where every entry of
    /// a full registry is live; [`ClientError::Disposed`] and its kin.
    pub fn spawn(
        &self,
        command: &str,
        args: impl IntoIterator<Item = impl Into<String>>,
        options: SpawnOptions,
    ) -> Result<Process, ClientError> {
        self.start(command::text(command, args), options)
    }

    /// [`AgentOs::spawn`] for a program or arguments that are not UTF-8. Errors as there; an example stands at
    /// [`AgentOs::exec_argv_os`].
    pub fn spawn_os(
        &self,
        command: impl AsRef<OsStr>,
        args: impl IntoIterator<Item = impl AsRef<OsStr>>,
        options: SpawnOptions,
    ) -> Result<Process, ClientError> {
        self.start(command::bytes(command, args), options)
    }

    /// [`AgentOs::spawn`] with a reader on each output that is there from the first byte, and that the process waits for.
    pub(crate) fn spawn_read(
        &self,
        command: &str,
        args: impl IntoIterator<Item = impl Into<String>>,
        options: SpawnOptions,
    ) -> Result<(Process, [ByteStream; 2]), ClientError> {
        self.start_with(command::text(command, args), options, |entry| {
            [OutputStream::Stdout, OutputStream::Stderr]
                .map(|which| ByteStream::new(entry.clone(), which, OutputFrom::Start, Overflow::Wait))
        })
    }

    fn start(&self, execute: Execute, options: SpawnOptions) -> Result<Process, ClientError> {
        self.start_with(execute, options, |_| ()).map(|(process, ())| process)
    }

    fn start_with<T>(
        &self,
        mut execute: Execute,
        mut options: SpawnOptions,
        subscribe: impl FnOnce(&Arc<Entry>) -> T,
    ) -> Result<(Process, T), ClientError> {
        let vm = self.vm();
        let (timeout, descriptors) = (options.start.timeout, options.take_descriptors()?);
        let stdin = descriptors.stdin.map(relay::Input::new).transpose()?;
        options.start.apply(&mut execute);
        execute.stdin = if options.no_stdin { StdinMode::Null } else { StdinMode::Pipe };
        (execute.stdout, execute.stderr) = (OutputMode::Pipe, OutputMode::Pipe);
        let events = options.observe.as_ref().map_or(0, |config| config.buffered_events);
        let wants = WantedStreams { stdin: !options.no_stdin, stdout: true, stderr: true, events };
        execute.observe = options.observe.as_ref().map(Into::into);
        let on_stdout = relay::output("stdout", options.on_stdout, descriptors.stdout);
        let on_stderr = relay::output("stderr", options.on_stderr, descriptors.stderr);
        let subscribe = |entry: &Arc<Entry>| (Relay::new(entry, on_stdout, on_stderr), subscribe(entry));
        let (process, relay, subscribed) = {
            // Right also after a panic under it: it counts what was registered.
            let mut spawned = vm.spawned.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            registry::admit(vm, &mut spawned)?;
            execute.process = vm.next_spawn_id();
            let (entry, (relay, subscribed)) = vm.execute(execute, wants, timeout, subscribe)?;
            *spawned += 1;
            (Process::new(entry), relay, subscribed)
        };
        relay.run(&process.entry);
        if let Some(stdin) = stdin {
            stdin.run(&process.entry);
        }
        Ok((process, subscribed))
    }

    /// The handle of a process spawned before.
    ///
    /// # Errors
    /// [`ClientError::ProcessNotFound`].
    pub fn process(&self, pid: u32) -> Result<Process, ClientError> {
        self.spawned_entry(pid).map(Process::new)
    }

    /// Calls `handler` exactly once, when the process's end is known or never will be, on the SDK's blocking pool.
    /// A process that has ended already calls it too. Sync: needs no runtime.
    ///
    /// ```no_run
    /// # fn example(vm: &agentvm_sdk::AgentOs, pid: u32) -> Result<(), agentvm_sdk::ClientError> {
    /// let subscription = vm.on_process_exit(pid, |outcome| match outcome {
    ///     Ok(status) => println!("it ended with {}", status.code),
    ///     Err(error) => println!("how it ended will never be known: {error}"),
    /// })?;
    /// subscription.detach(); // or keep it, and drop it to unsubscribe
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`ClientError::ProcessNotFound`].
    #[doc(alias = "onProcessExit")]
    pub fn on_process_exit(
        &self,
        pid: u32,
        handler: impl FnOnce(Result<ExitStatus, ClientError>) + Send + 'static,
    ) -> Result<Subscription, ClientError> {
        let entry = self.spawned_entry(pid)?;
        let exit = entry.exit.clone();
        Ok(Subscription::new(callback::run(async move {
            let outcome = exit.wait().await;
            guarded("exit handler", || handler(outcome));
        })))
    }

    /// Awaits a process's end: its exit status, or 128 + n for death by signal n.
    ///
    /// Resolves after everything the process itself wrote has reached every subscriber and every callback has
    /// returned; a descendant that still holds the output delays nothing.
    ///
    /// # Errors
    /// [`ClientError::ProcessNotFound`], [`ClientError::SpawnFailed`], and where the end will never be known
    /// [`ClientError::Disposed`], [`ClientError::VmFailed`], [`ClientError::SidecarExited`] or
    /// [`ClientError::Disconnected`].
    ///
    /// # Cancel safety
    /// Cancel safe; the outcome is kept.
    #[doc(alias = "waitProcess")]
    pub async fn wait_process(&self, pid: u32) -> Result<i32, ClientError> {
        self.wait_process_status(pid).await.map(|status| status.code)
    }

    /// [`AgentOs::wait_process`] with everything that is known of the end: the signal, the cause, the resources used.
    /// Errors and cancel safety as there.
    ///
    /// ```no_run
    /// # async fn example(vm: &agentvm_sdk::AgentOs, pid: u32) -> Result<(), agentvm_sdk::ClientError> {
    /// let status = vm.wait_process_status(pid).await?;
    /// println!("{} {:?}, {:?} of processor time", status.code, status.signal, status.user_time + status.system_time);
    /// # Ok(()) }
    /// ```
    pub async fn wait_process_status(&self, pid: u32) -> Result<ExitStatus, ClientError> {
        let exit = self.spawned_entry(pid)?.exit.clone();
        exit.wait().await
    }
}

impl Process {
    fn new(entry: Arc<Entry>) -> Self {
        let mut pin = entry.pin.lock().expect("no code panics under this lock");
        let held = pin.upgrade().unwrap_or_default();
        *pin = Arc::downgrade(&held);
        drop(pin);
        Self { entry, _pin: held }
    }

    /// The synthetic pid.
    pub fn pid(&self) -> u32 {
        self.entry.id.0
    }

    /// Awaits its end. Errors and ordering as [`AgentOs::wait_process`]; cancel safe.
    pub async fn wait(&self) -> Result<ExitStatus, ClientError> {
        self.entry.exit.wait().await
    }

    /// Its standard output, from the oldest byte retained.
    pub fn stdout(&self) -> ByteStream {
        self.output_from(OutputStream::Stdout, OutputFrom::Start, Overflow::DropOldest)
    }

    /// Its standard error, from the oldest byte retained.
    pub fn stderr(&self) -> ByteStream {
        self.output_from(OutputStream::Stderr, OutputFrom::Start, Overflow::DropOldest)
    }

    /// One output, from where and with what overflow is wanted.
    pub fn output_from(&self, stream: OutputStream, from: OutputFrom, overflow: Overflow) -> ByteStream {
        ByteStream::new(self.entry.clone(), stream, from, overflow)
    }

    /// Both outputs in the order in which they arrived. See [`AgentOs::on_process_output`].
    pub fn output(&self) -> OutputEvents {
        OutputEvents::new(self.entry.clone())
    }

    /// What is kept of an output from `offset` on. See [`AgentOs::read_process_output`].
    pub fn read_output(&self, stream: OutputStream, offset: u64, max_bytes: usize) -> OutputPage {
        self.entry.read_page(stream, offset, max_bytes)
    }

    /// What was observed of it and its descendants, from the first event on; `None` unless it was spawned with
    /// [`SpawnOptions::observe`](crate::SpawnOptions::observe). Each subscriber reads for itself, at its own pace.
    pub fn observer(&self) -> Option<ObserverSubscriber> {
        self.entry.observation.clone().map(ObserverSubscriber::new)
    }

    /// Queues bytes for its standard input. Errors as [`AgentOs::write_process_stdin`].
    #[doc(alias = "writeStdin")]
    pub fn write_stdin(&self, input: impl Into<StdinInput>) -> Result<(), ClientError> {
        self.entry.write_stdin(input.into().0)
    }

    /// The same, waiting for room. Errors and cancel safety as [`AgentOs::write_process_stdin_all`].
    pub async fn write_stdin_all(&self, input: impl Into<StdinInput>) -> Result<(), ClientError> {
        self.entry.write_stdin_all(input.into().0).await
    }

    /// Ends its standard input behind everything written before.
    #[doc(alias = "closeStdin")]
    pub fn close_stdin(&self) {
        self.entry.close_stdin();
    }

    /// Its standard input as a writer that waits for room; `BrokenPipe` once it is closed or the process has ended.
    /// Shutting it down closes standard input, dropping it does not.
    ///
    /// ```no_run
    /// # async fn example(process: agentvm_sdk::Process) -> Result<(), std::io::Error> {
    /// use tokio::io::AsyncWriteExt as _;
    ///
    /// let mut stdin = process.stdin();
    /// stdin.write_all(b"one line\n").await?;
    /// stdin.shutdown().await?;
    /// # Ok(()) }
    /// ```
    pub fn stdin(&self) -> impl AsyncWrite + Send + Unpin + use<> {
        Stdin(self.entry.clone())
    }
}

/// Hands on every chunk of the outputs that somebody asked for, waiting until it is taken.
struct Relay(Vec<Relayed>);

impl Relay {
    fn new(entry: &Arc<Entry>, stdout: Option<Taker>, stderr: Option<Taker>) -> Self {
        let relayed = |name, which, taker: Option<Taker>| {
            taker.map(|taker| Relayed {
                name,
                stream: ByteStream::new(entry.clone(), which, OutputFrom::Start, Overflow::Wait),
                taker,
            })
        };
        let stdout = relayed("on_stdout", OutputStream::Stdout, stdout);
        let stderr = relayed("on_stderr", OutputStream::Stderr, stderr);
        Self([stdout, stderr].into_iter().flatten().collect())
    }

    /// The program's code is called one call at a time; a descriptor that takes nothing holds up only its own output.
    fn run(self, owner: &Entry) {
        let (together, alone): (Vec<_>, Vec<_>) =
            self.0.into_iter().partition(|output| output.taker.calls_back);
        let each = alone.into_iter().map(|output| vec![output]);
        for mut outputs in each.chain([together]).filter(|outputs| !outputs.is_empty()) {
            owner.own_relay(callback::run(poll_fn(move |cx| poll_all(&mut outputs, cx))));
        }
    }
}

/// Hands on what is there, in turns: a flood on one output must not keep the other full.
fn poll_all(outputs: &mut Vec<Relayed>, cx: &mut Context<'_>) -> Poll<()> {
    let mut taken = true;
    while std::mem::take(&mut taken) {
        outputs.retain_mut(|output| {
            let chunk = output.poll_chunk(cx);
            taken |= chunk == Poll::Ready(true);
            chunk != Poll::Ready(false)
        });
    }
    if outputs.is_empty() { Poll::Ready(()) } else { Poll::Pending }
}

/// One output and who takes it.
struct Relayed {
    name: &'static str,
    stream: ByteStream,
    taker: Taker,
}

impl Relayed {
    /// Hands on what comes next; false once nothing follows, or the program's code has panicked.
    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        match std::task::ready!(self.stream.poll_peek(cx)) {
            Some(Ok(Output::Data(bytes))) => {
                let returned = guarded(self.name, || (self.taker.take)(&bytes)).is_some();
                if returned {
                    self.stream.advance(bytes.len());
                }
                Poll::Ready(returned)
            }
            Some(Ok(Output::Gap { .. })) => Poll::Ready(true),
            Some(Err(_)) | None => Poll::Ready(false),
        }
    }
}

struct Stdin(Arc<Entry>);

impl AsyncWrite for Stdin {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.0.poll_write_stdin(cx, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.close_stdin();
        Poll::Ready(Ok(()))
    }
}
