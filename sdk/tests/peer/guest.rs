//! A process of the scripted peer: it exists because the client asked for it, and does what the test says.

use agentvm_sdk::{
    ExitCause, Signal, SignalTarget,
    wire::{
        error::{Code, Rejection},
        id::{ProcessId, RequestId, StreamId},
        message::{Event, Request, Response, Scope},
        process::{
            Execute, OutputDrained, ProcessExited, ProcessSignaled, ProcessStarted, SignalProcess, StreamEnds,
        },
        session::Limits,
        stdio::Header,
    },
};

use crate::sidecar::{Heard, Peer};

/// What the peer knows of a process.
pub(crate) struct Guest {
    /// The request it was asked for with.
    pub(crate) request: RequestId,
    /// Its body.
    pub(crate) execute: Execute,
}

/// When every process of a scene started, epoch milliseconds.
pub(crate) const STARTED_AT_MS: u64 = 1_700_000_000_000;
/// … and ended.
pub(crate) const EXITED_AT_MS: u64 = STARTED_AT_MS + 250;

impl Guest {
    pub(crate) fn id(&self) -> ProcessId {
        self.execute.process
    }

    pub(crate) fn stdin(&self) -> StreamId {
        self.execute.streams.stdin.expect("it has a standard input")
    }

    pub(crate) fn stdout(&self) -> StreamId {
        self.execute.streams.stdout.expect("it has a standard output")
    }

    pub(crate) fn stderr(&self) -> StreamId {
        self.execute.streams.stderr.expect("it has a standard error")
    }

    /// An exit with status 0 and output up to `stdout` and `stderr`.
    pub(crate) fn exit(&self, stdout: u64, stderr: u64) -> ProcessExited {
        ProcessExited {
            process: self.id(),
            exit_code: 0,
            signal: None,
            cause: ExitCause::Exited,
            core_dumped: false,
            end: StreamEnds { stdout: Some(stdout), stderr: Some(stderr) },
            output_open: false,
            told: Vec::new(),
            user_us: 2000,
            sys_us: 1000,
            max_rss_bytes: 4096,
            exited_at_ms: EXITED_AT_MS,
        }
    }
}

impl Peer {
    /// Hears `execute` in the scope of its VM.
    pub(crate) async fn hears_execute(&mut self) -> Guest {
        let (request, scope, Request::Execute(execute)) = self.request().await else {
            panic!("expected execute")
        };
        assert_eq!(scope, Scope::vm(self.vm));
        let window = execute.window_bytes.unwrap_or(Limits::default().window_bytes);
        self.granted.extend(execute.streams.ids().map(|stream| (stream, window)));
        Guest { request, execute }
    }

    /// Hears `execute` and starts it.
    pub(crate) async fn starts(&mut self) -> Guest {
        let guest = self.hears_execute().await;
        self.started(&guest).await;
        guest
    }

    pub(crate) async fn started(&mut self, guest: &Guest) {
        let started = ProcessStarted { pid: 7, started_at_ms: STARTED_AT_MS };
        self.answer(guest.request, &Response::ProcessStarted(started)).await;
    }

    /// Refuses to start it: there is no such program.
    pub(crate) async fn finds_nothing_to_start(&mut self, guest: &Guest) {
        let mut rejection = Rejection::new(Code::from("ENOENT"), "No such file or directory");
        rejection.details.step = Some("exec".to_owned());
        rejection.details.errno = Some(2);
        self.rejects(guest.request, rejection).await;
    }

    /// The next bytes of an output.
    pub(crate) async fn writes(&mut self, stream: StreamId, bytes: &[u8]) {
        self.next_frame(stream, bytes, false).await;
    }

    /// The end of an output.
    pub(crate) async fn finishes(&mut self, stream: StreamId) {
        self.next_frame(stream, b"", true).await;
    }

    pub(crate) async fn next_frame(&mut self, stream: StreamId, bytes: &[u8], fin: bool) {
        let offset = self.sent(stream);
        self.sent.insert(stream, offset + bytes.len() as u64);
        self.frame(Header { stream, offset, fin }, bytes).await;
    }

    /// Up to where an output was sent.
    pub(crate) fn sent(&self, stream: StreamId) -> u64 {
        self.sent.get(&stream).copied().unwrap_or(0)
    }

    /// Fills an output with as much as the client has let it, and then waits for more credit, `total` bytes in all.
    pub(crate) async fn floods(&mut self, stream: StreamId, total: u64) {
        while self.sent(stream) < total {
            let room = (self.granted(stream).min(total) - self.sent(stream)).min(64 << 10);
            if room == 0 {
                self.hears_credit(stream, self.sent(stream) + 1).await;
            } else {
                self.writes(stream, &pattern(self.sent(stream), room)).await;
            }
        }
    }

    /// It exits with everything written that was sent.
    pub(crate) async fn exits(&mut self, guest: &Guest, exit_code: i32) {
        let (stdout, stderr) = (self.sent(guest.stdout()), self.sent(guest.stderr()));
        self.exited(ProcessExited { exit_code, ..guest.exit(stdout, stderr) }).await;
    }

    pub(crate) async fn exited(&mut self, exited: ProcessExited) {
        self.event(Event::ProcessExited(exited)).await;
    }

    pub(crate) async fn drained(&mut self, guest: &Guest) {
        let end =
            StreamEnds { stdout: Some(self.sent(guest.stdout())), stderr: Some(self.sent(guest.stderr())) };
        self.event(Event::OutputDrained(OutputDrained { process: guest.id(), end })).await;
    }

    /// Hears a signal; returns the id to answer.
    pub(crate) async fn hears_signal(
        &mut self,
        guest: &Guest,
        signal: Signal,
        target: SignalTarget,
    ) -> RequestId {
        let (id, _, Request::SignalProcess(heard)) = self.request().await else {
            panic!("expected signal_process")
        };
        assert_eq!(heard, SignalProcess { process: guest.id(), signal, target });
        id
    }

    /// Hears a kill of the whole tree and carries it out.
    pub(crate) async fn is_told_to_kill(&mut self, guest: &Guest) {
        let id = self.hears_signal(guest, Signal::KILL, SignalTarget::Tree).await;
        self.signaled(id).await;
    }

    pub(crate) async fn signaled(&mut self, id: RequestId) {
        self.answer(id, &Response::ProcessSignaled(ProcessSignaled { delivered: 1 })).await;
    }

    /// Hears the next bytes of standard input; the flag is their end.
    pub(crate) async fn hears_stdin(&mut self, guest: &Guest) -> (u64, Vec<u8>, bool) {
        match self.hears().await {
            Heard::Data { stream, offset, bytes, fin } if stream == guest.stdin() => {
                (offset, bytes.to_vec(), fin)
            }
            other => panic!("expected standard input, heard {other:?}"),
        }
    }
}

/// Bytes that tell where they stand in a stream.
pub(crate) fn pattern(offset: u64, len: u64) -> Vec<u8> {
    (offset..offset + len).map(|at| u8::try_from(at % 251).expect("below 251")).collect()
}
