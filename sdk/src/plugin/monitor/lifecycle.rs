//! The life of one monitor: what it does, what follows from what happens to it, and what its owner has to do.
//!
//! ```text
//!            start                     ended                        policy
//!  resting ─────────► running ──────────────────────► resting ◄──── never, or gave up
//!     ▲                 │  ▲                             │
//!     │            stop │  │ start, or a new spec        │ on_failure, always
//!     │                 ▼  │                             ▼
//!     └── ended ──── stopping                       backing off ──── time is up ──► running
//!                                                        └── stop ──► resting
//! ```
//!
//! Each run has a number: whoever tells of one that is not the newest is not heard (`session`).

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{
    spec::{MonitorRestart, MonitorSpec},
    status::MonitorState,
};

/// Longest wait before a restart, unless the first is longer.
const MAX_BACKOFF: Duration = Duration::from_secs(60);

/// See the module.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Lifecycle {
    phase: Phase,
    pub(super) state: MonitorState,
    /// It runs, or will without being told to.
    pub(super) armed: bool,
    pub(super) run_id: u64,
    pub(super) restarts: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Phase {
    #[default]
    Resting,
    Running(Option<Stop>),
    BackingOff,
    /// Its run was ended with the session: the next one tells of it.
    Left,
}

/// Why a run is being stopped: what follows on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Stop {
    /// Nothing.
    Rest,
    /// Another run.
    Again,
    /// The session ends.
    Leave,
}

/// What an owner has to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Nothing.
    Rest,
    /// Carry out the run.
    Run { run_id: u64 },
    /// Tell that the run is over; it was stopped before it began.
    Skip { run_id: u64 },
    /// Wait, and say so.
    BackOff(Duration),
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum End {
    Exited {
        status: i32,
    },
    Signalled {
        signal: String,
    },
    TimedOut {
        after_ms: u64,
        signal: Option<String>,
    },
    /// It was stopped before its command began.
    Unbegun,
    StartFailed(String),
    /// VM or sidecar are gone, or the session ended.
    Lost(String),
    /// A fault of ours, or somebody cancelled its task.
    Abandoned,
}

/// What is told of the end of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ended {
    /// It was asked for.
    pub(super) stopped: bool,
    /// The limit of restarts is reached.
    pub(super) gave_up: bool,
}

impl Lifecycle {
    pub(super) fn is_running(&self) -> bool {
        matches!(self.phase, Phase::Running(_))
    }

    /// Nothing of it runs, and nothing will without being told to.
    pub(super) fn is_resting(&self) -> bool {
        matches!(self.phase, Phase::Resting | Phase::Left)
    }

    pub(super) fn is_stopping(&self) -> bool {
        matches!(self.phase, Phase::Running(Some(_)))
    }

    /// Begins a run, unless one goes on; a run that is being stopped is followed by another. True if a run began.
    pub(super) fn start(&mut self) -> bool {
        self.armed = true;
        match &mut self.phase {
            Phase::Running(stop) => {
                if *stop == Some(Stop::Rest) {
                    *stop = Some(Stop::Again);
                }
                false
            }
            Phase::Resting | Phase::BackingOff | Phase::Left => {
                self.restarts = 0;
                self.begin();
                true
            }
        }
    }

    /// Ends a run that goes on and begins another; begins one if none does.
    pub(super) fn replace(&mut self) -> bool {
        let began = self.start();
        if let Phase::Running(stop) = &mut self.phase
            && !began
            && *stop != Some(Stop::Leave)
        {
            *stop = Some(Stop::Again);
        }
        began
    }

    /// Ends what goes on, and stays so. What has ended by itself keeps its state.
    pub(super) fn stop(&mut self) {
        self.armed = false;
        match &mut self.phase {
            Phase::Running(Some(Stop::Leave)) | Phase::Left => {}
            Phase::Running(stop) => *stop = Some(Stop::Rest),
            Phase::BackingOff => (self.phase, self.state) = (Phase::Resting, MonitorState::Stopped),
            Phase::Resting if self.state == MonitorState::Idle => self.state = MonitorState::Stopped,
            Phase::Resting => {}
        }
    }

    /// The session ends: what goes on ends too, and is remembered as going on.
    pub(super) fn leave(&mut self) {
        if let Phase::Running(stop) = &mut self.phase {
            *stop = Some(Stop::Leave);
        }
    }

    pub(super) fn next(&self, spec: &MonitorSpec) -> Step {
        match self.phase {
            Phase::Running(None) => Step::Run { run_id: self.run_id },
            Phase::Running(Some(_)) => Step::Skip { run_id: self.run_id },
            Phase::BackingOff => Step::BackOff(self.backoff(spec)),
            Phase::Resting | Phase::Left => Step::Rest,
        }
    }

    /// The wait before a restart is over. True if a run began.
    pub(super) fn backed_off(&mut self) -> bool {
        let due = self.phase == Phase::BackingOff;
        if due {
            self.restarts += 1;
            self.begin();
        }
        due
    }

    /// The run has ended. `None` if nothing is told of it.
    pub(super) fn ended(&mut self, end: &End, spec: &MonitorSpec) -> Option<Ended> {
        let Phase::Running(stop) = self.phase else { return None };
        let stopped = matches!(stop, Some(Stop::Rest | Stop::Again));
        self.state = match end {
            _ if stopped => MonitorState::Stopped,
            End::Exited { status: 0 } => MonitorState::Exited,
            _ => MonitorState::Failed,
        };
        let mut gave_up = false;
        self.phase = match stop {
            Some(Stop::Leave) => {
                self.state = MonitorState::Running;
                self.phase = Phase::Left;
                return None;
            }
            Some(Stop::Again) => {
                self.restarts = 0;
                self.begin();
                return Some(Ended { stopped, gave_up });
            }
            None if wants_restart(spec, end) => {
                gave_up = self.restarts >= spec.max_restarts;
                if gave_up { Phase::Resting } else { Phase::BackingOff }
            }
            Some(Stop::Rest) | None => Phase::Resting,
        };
        self.armed = self.phase == Phase::BackingOff;
        Some(Ended { stopped, gave_up })
    }

    /// In a new session. True if a run was going on when the old one ended.
    pub(super) fn restore(&mut self, restarts: bool) -> bool {
        let ran = matches!(self.phase, Phase::Running(_) | Phase::Left);
        self.phase = Phase::Resting;
        self.armed &= restarts;
        if ran || self.armed {
            self.state = MonitorState::Idle;
        }
        ran
    }

    fn begin(&mut self) {
        self.run_id += 1;
        self.state = MonitorState::Running;
        self.phase = Phase::Running(None);
    }

    fn backoff(&self, spec: &MonitorSpec) -> Duration {
        let first = Duration::from_millis(spec.backoff_ms);
        first.saturating_mul(1 << self.restarts.min(16)).min(MAX_BACKOFF.max(first))
    }
}

fn wants_restart(spec: &MonitorSpec, end: &End) -> bool {
    match (spec.restart, end) {
        (MonitorRestart::Never, _) | (_, End::Lost(_) | End::Unbegun | End::Abandoned) => false,
        (MonitorRestart::OnFailure, end) => *end != End::Exited { status: 0 },
        (MonitorRestart::Always, _) => true,
    }
}
