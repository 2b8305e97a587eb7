//! What is kept of one monitor.

use serde::{Deserialize, Serialize};

use super::{
    events::Events,
    lifecycle::{End, Ended, Lifecycle},
    limits::MonitorLimits,
    lines::Line,
    spec::{MonitorSpec, MonitorWakePolicy},
    status::{MonitorEvent, MonitorStatus, MonitorStream},
    wake::{Wake, turn_input},
};

/// See the module. Its spec has its visible id.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Monitor {
    pub(super) spec: MonitorSpec,
    pub(super) life: Lifecycle,
    pub(super) events: Events,
    pub(super) wake: Wake,
    event_count: u64,
    last_event: Option<String>,
    last_error: Option<String>,
    last_exit_status: Option<i32>,
    last_signal: Option<String>,
    started_at_ms: Option<u64>,
    #[serde(skip)]
    pub(super) pid: Option<u32>,
    /// A task carries out what it wants.
    #[serde(skip)]
    pub(super) owned: bool,
    /// It was registered in this session.
    #[serde(skip)]
    pub(super) registered: bool,
    /// Its run began with another spec.
    #[serde(skip)]
    outdated: bool,
}

/// What an event is made from, beside its text.
#[derive(Debug, Clone, Copy)]
pub(super) struct Origin<'a> {
    /// Counts the events of the session.
    pub(super) sequence: u64,
    /// What was taken already.
    pub(super) taken: u64,
    pub(super) now_ms: u64,
    pub(super) limits: &'a MonitorLimits,
}

impl Monitor {
    pub(super) fn new(spec: MonitorSpec) -> Self {
        Self {
            spec,
            life: Lifecycle::default(),
            events: Events::default(),
            wake: Wake::default(),
            event_count: 0,
            last_event: None,
            last_error: None,
            last_exit_status: None,
            last_signal: None,
            started_at_ms: None,
            pid: None,
            owned: false,
            registered: false,
            outdated: false,
        }
    }

    /// Takes another spec, for the next run.
    pub(super) fn respecify(&mut self, spec: MonitorSpec) {
        self.outdated |= self.life.is_running() && self.spec != spec;
        self.spec = spec;
    }

    /// Starts it: one that runs is left alone, unless its run began with another spec.
    pub(super) fn start(&mut self, now_ms: u64) {
        let began = if self.outdated { self.life.replace() } else { self.life.start() };
        if began {
            self.began(now_ms);
        }
    }

    pub(super) fn status(&self) -> MonitorStatus {
        MonitorStatus {
            spec: self.spec.shown(),
            armed: self.life.armed,
            state: self.life.state,
            last_event: self.last_event.clone(),
            last_error: self.last_error.clone(),
            last_exit_status: self.last_exit_status,
            last_signal: self.last_signal.clone(),
            event_count: self.event_count,
            dropped_count: self.events.dropped_count,
            run_id: self.life.run_id,
            pid: self.pid,
            started_at_ms: self.started_at_ms,
            restarts: self.life.restarts,
        }
    }

    /// A run has begun.
    pub(super) fn began(&mut self, now_ms: u64) {
        self.started_at_ms = Some(now_ms);
        self.pid = None;
        self.outdated = false;
    }

    pub(super) fn line(&mut self, stream: MonitorStream, line: Line, origin: Origin<'_>) {
        let wakes = stream == MonitorStream::Stdout;
        self.add(stream, line.text, line.truncated, wakes, self.life.run_id, origin);
    }

    /// Keeps how a run ended, and returns what is told of it.
    pub(super) fn ended(&mut self, end: &End, ended: &Ended) -> Vec<String> {
        self.pid = None;
        self.last_exit_status = match end {
            End::Exited { status } => Some(*status),
            _ => None,
        };
        self.last_signal = match end {
            End::Signalled { signal } => Some(signal.clone()),
            End::TimedOut { signal, .. } => signal.clone(),
            _ => None,
        };
        let (message, error) = if ended.stopped { ("Monitor stopped".to_owned(), None) } else { told(end) };
        self.last_error = error;
        let gave_up = ended.gave_up.then(|| format!("Monitor gave up after {} restarts", self.life.restarts));
        [Some(message), gave_up].into_iter().flatten().collect()
    }

    /// Adds what happened to a run.
    pub(super) fn happened(&mut self, run_id: u64, message: String, wakes: bool, origin: Origin<'_>) {
        let wakes = wakes && self.spec.wake_on_exit;
        self.add(MonitorStream::Lifecycle, message, false, wakes, run_id, origin);
    }

    fn add(
        &mut self,
        stream: MonitorStream,
        message: String,
        truncated: bool,
        wakes: bool,
        run_id: u64,
        origin: Origin<'_>,
    ) {
        let wakes = wakes && self.spec.wake_policy == MonitorWakePolicy::QueueTurn;
        let queue_turn_input = wakes.then(|| turn_input(&self.spec.id, &message));
        if wakes {
            self.wake.push(origin.sequence, message.clone(), origin.limits);
        }
        self.event_count += 1;
        self.last_event = Some(message.clone());
        let event = MonitorEvent {
            sequence: origin.sequence,
            monitor_id: self.spec.id.clone(),
            message,
            queue_turn_input,
            run_id,
            stream,
            timestamp_ms: origin.now_ms,
            truncated,
        };
        self.events.push(event, origin.limits, origin.taken);
    }
}

/// What is told of an end, and what is kept of it if it is a failure.
fn told(end: &End) -> (String, Option<String>) {
    let failure = |rest: String| (format!("Monitor {rest}"), Some(format!("monitor {rest}")));
    match end {
        End::Exited { status: 0 } => ("Monitor exited".to_owned(), None),
        End::Exited { status } => {
            let error = format!("monitor exited with status {status}");
            (format!("Monitor failed with status {status}"), Some(error))
        }
        End::Signalled { signal } => failure(format!("killed by {signal}")),
        End::TimedOut { after_ms, .. } => failure(format!("timed out after {after_ms}ms")),
        End::StartFailed(cause) => {
            let rest = format!("to start monitor: {cause}");
            (format!("Failed {rest}"), Some(format!("failed {rest}")))
        }
        End::Lost(cause) => failure(format!("lost: {cause}")),
        End::Unbegun | End::Abandoned => failure("failed: its task ended early".to_owned()),
    }
}
