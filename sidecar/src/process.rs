//! A process as the sidecar keeps it, from `execute` until its outputs end.

mod lifecycle;
mod memory;
mod start;

use std::{sync::Arc, time::Duration};

use agentvm_wire::{
    bytes64::{self, Bytes64},
    error::{Code, Rejection},
    id::{ProcessId, RequestId, StreamId},
    observer::ProcessKey,
    process::{
        Drain, Execute, ExitCause, ProcessExited, ProcessRow, ProcessStarted, ProcessStatus, Signal,
        StreamEnds,
    },
};
use tokio::{
    sync::Notify,
    time::{self, Instant},
};

pub(crate) use lifecycle::{Action, Event, Failure, Lifecycle};
use memory::Memory;
pub(crate) use start::{Defaults, start};

use crate::{
    errno,
    init::{Exit, MAX_ARGS, MAX_ARGS_BYTES, StartStep},
    stdio::source::Source,
};

/// A start that came too late, and was given up.
fn not_in_time() -> Rejection {
    let mut rejection = Rejection::new(Code::DEADLINE_EXCEEDED, "not started before its timeout");
    rejection.details.step = Some(StartStep::Deadline.name().to_owned());
    rejection
}

/// The libc's own two signals have no name but their number.
fn signal_name(number: i32) -> String {
    Signal::from_number(number).map_or_else(|| format!("SIG{number}"), |signal| signal.to_string())
}

/// Who runs processes, as the table calls it.
pub(crate) const DRIVER: &str = "agentvm-sidecar";

/// One started process.
#[derive(Debug)]
pub(crate) struct Process {
    lifecycle: Lifecycle,
    pub(crate) id: ProcessId,
    command: String,
    /// The arguments as the table remembers them; absent behind an `exec`, which has no row there.
    shown: Option<Arguments>,
    cwd: String,
    outputs: Outputs,
    stdin: Option<StreamId>,
    observation: Option<StreamId>,
    drain: Option<Drain>,
    /// When its timeout runs out.
    pub(crate) deadline: Option<Instant>,
    /// Why it is being killed, where nobody asked for that.
    doom: Option<ExitCause>,
    memory: Memory,
    pub(crate) pid: u32,
    started_at_ms: u64,
    /// Known where it is observed.
    start_ticks: Option<u64>,
}

/// The command and its arguments, cut as init cuts those of live processes.
#[derive(Debug)]
struct Arguments {
    args: Vec<String>,
    args_b64: Option<Vec<Bytes64>>,
    truncated: bool,
}

/// The outputs a process has, and the news of both.
#[derive(Debug, Clone)]
pub(crate) struct Outputs {
    pub(crate) stdout: Option<Arc<Source>>,
    pub(crate) stderr: Option<Arc<Source>>,
    /// A chunk was read from one of them, or one ended.
    pub(crate) activity: Arc<Notify>,
}

impl Process {
    fn new(
        request: RequestId,
        execute: &Execute,
        cwd: String,
        outputs: Outputs,
        deadline: Option<Instant>,
        memory: Memory,
    ) -> Self {
        Self {
            lifecycle: Lifecycle::Starting { request },
            id: execute.process,
            command: execute.command.clone(),
            shown: (!execute.process.is_exec()).then(|| Arguments::of(execute)),
            cwd,
            outputs,
            stdin: execute.streams.stdin,
            observation: execute.observe.as_ref().map(|observe| observe.stream),
            drain: execute.drain,
            deadline,
            doom: None,
            memory,
            pid: 0,
            started_at_ms: 0,
            start_ticks: None,
        }
    }

    /// Takes what init says of it and returns what follows for the client.
    pub(crate) fn step(&mut self, event: Event) -> Vec<Action> {
        match event {
            Event::Started { pid, started_at_ms, start_ticks } => {
                (self.pid, self.started_at_ms, self.start_ticks) = (pid, started_at_ms, start_ticks);
            }
            Event::Expired => drop(self.doom.get_or_insert(ExitCause::Timeout)),
            Event::CpuLimit => drop(self.doom.get_or_insert(ExitCause::CpuLimit)),
            Event::StartFailed { .. } | Event::Exited(_) | Event::Lost => {}
        }
        self.lifecycle.step(event)
    }

    pub(crate) fn is_running(&self) -> bool {
        self.lifecycle == Lifecycle::Running
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.lifecycle == Lifecycle::Ended
    }

    pub(crate) fn started(&self) -> ProcessStarted {
        ProcessStarted { pid: self.pid, started_at_ms: self.started_at_ms }
    }

    /// Names it for ever, where it is known.
    /// It is known by its key from now on.
    pub(crate) fn identify(&mut self, key: ProcessKey) {
        self.start_ticks.get_or_insert(key.start_ticks);
    }

    pub(crate) fn key(&self) -> Option<ProcessKey> {
        self.start_ticks.map(|start_ticks| ProcessKey { pid: self.pid, start_ticks })
    }

    /// The streams of a process that did not start, or whose VM is gone.
    pub(crate) fn streams(&self) -> impl Iterator<Item = StreamId> + use<> {
        let output = |source: &Option<Arc<Source>>| source.as_ref().map(|source| source.stream());
        let outputs = [output(&self.outputs.stdout), output(&self.outputs.stderr)];
        [self.stdin, self.observation].into_iter().chain(outputs).flatten()
    }

    pub(crate) fn outputs(&self) -> &Outputs {
        &self.outputs
    }

    /// What the client is told where the process never ran: the errno by name, the step, and the path it is about.
    pub(crate) fn rejection(&self, failure: Failure) -> Rejection {
        let Failure::Step(step, errno) = failure else { return Rejection::vm_not_found() };
        if step == StartStep::Deadline {
            return not_in_time();
        }
        let words = errno::text(errno);
        let message =
            if step == StartStep::Cwd { format!("working directory {}: {words}", self.cwd) } else { words };
        let mut rejection = Rejection::new(Code::from(errno::name(errno)), message);
        rejection.details.step = Some(step.name().to_owned());
        rejection.details.errno = Some(errno);
        rejection.details.path = match step {
            StartStep::Cwd => Some(self.cwd.clone()),
            StartStep::Exec => Some(self.command.clone()),
            _ => None,
        };
        rejection
    }

    /// How long the tail of descendants' output is awaited, if the client asked for that.
    pub(crate) fn drain(&self) -> Option<Drain> {
        self.drain
    }

    /// The event that tells its end: what lies in the pipes at this moment is its own.
    pub(crate) fn exited(&self, exit: &Exit) -> ProcessExited {
        let killed = exit.signal == Some(Signal::KILL.number());
        let (signal, cause) = match exit.signal {
            Some(signal) => {
                // One that ended by itself before the kill met it has its own cause.
                let cause = match self.doom {
                    Some(doom) if killed => doom,
                    None if killed && self.memory.has_run_out() => ExitCause::Oom,
                    _ => ExitCause::Signaled,
                };
                (Some(signal_name(signal)), cause)
            }
            None => (None, ExitCause::Exited),
        };
        self.outputs.iter().for_each(|source| source.process_ended());
        ProcessExited {
            process: self.id,
            exit_code: exit.shell_code(),
            signal,
            cause,
            core_dumped: exit.core_dumped,
            end: self.outputs.settle(),
            output_open: self.outputs.any_open(),
            told: Vec::new(),
            user_us: exit.user_us,
            sys_us: exit.sys_us,
            max_rss_bytes: exit.max_rss_bytes,
            exited_at_ms: exit.exited_at_ms,
        }
    }

    /// The row by which the table remembers it; nobody knows what stood behind an `exec` by a pid.
    pub(crate) fn exited_row(&self, exited: &ProcessExited) -> Option<ProcessRow> {
        let shown = self.shown.as_ref()?;
        Some(ProcessRow {
            process: Some(self.id),
            root: Some(self.id),
            pid: self.pid,
            ppid: 1,
            pgid: self.pid,
            sid: self.pid,
            driver: DRIVER.to_owned(),
            command: self.command.clone(),
            args: shown.args.clone(),
            args_b64: shown.args_b64.clone(),
            args_truncated: shown.truncated,
            cwd: Some(self.cwd.clone()),
            status: ProcessStatus::Exited,
            exit_code: Some(exited.exit_code),
            signal: exited.signal.clone(),
            started_at_ms: self.started_at_ms,
            exited_at_ms: Some(exited.exited_at_ms),
            rss_bytes: 0,
            cpu_time_us: exited.user_us.saturating_add(exited.sys_us),
        })
    }
}

impl Arguments {
    fn of(execute: &Execute) -> Self {
        let (mut kept, mut room, mut truncated) = (Vec::new(), MAX_ARGS_BYTES, false);
        for arg in std::iter::once(execute.command_bytes()).chain(execute.args_bytes()) {
            // Each ends with a NUL, which has to fit too.
            truncated = kept.len() == MAX_ARGS || arg.len() >= room;
            if kept.len() < MAX_ARGS && room > 0 {
                kept.push(arg[..arg.len().min(room)].to_vec());
            }
            if truncated {
                break;
            }
            room -= arg.len() + 1;
        }
        let (args, args_b64) = bytes64::split_all(kept);
        Self { args, args_b64, truncated }
    }
}

impl Outputs {
    /// Up to where each stream that still goes to the client holds what was written so far.
    pub(crate) fn settle(&self) -> StreamEnds {
        let settled = |source: &Option<Arc<Source>>| {
            source.as_ref().filter(|source| !source.is_discarded()).map(|source| source.settle())
        };
        StreamEnds { stdout: settled(&self.stdout), stderr: settled(&self.stderr) }
    }

    /// Returns once nothing was written for a while, every output has ended, or the limit is met; with how far the
    /// streams go then.
    pub(crate) async fn drain(&self, drain: Drain) -> StreamEnds {
        let limit = time::Instant::now() + Duration::from_millis(drain.max_ms);
        while self.any_open() {
            let quiet = time::Instant::now() + Duration::from_millis(drain.quiet_ms);
            if time::timeout_at(quiet.min(limit), self.activity.notified()).await.is_err() {
                break;
            }
        }
        self.settle()
    }

    /// Whether a descendant still holds an output that goes to the client.
    pub(crate) fn any_open(&self) -> bool {
        self.iter().any(|source| !source.is_discarded() && source.is_open())
    }

    fn iter(&self) -> impl Iterator<Item = &Arc<Source>> {
        [&self.stdout, &self.stderr].into_iter().flatten()
    }
}
