//! The life of one process as the client sees it: a pure step from event to event, and at most one outcome.
//!
//! ```text
//!            Started                Exited                     Progress: all delivered
//! Starting ───────────► Running ─────────────► Delivering ─────────────────────────────► Ended(status)
//!    │                     │      Exited,          ▲   │
//!    │ StartFailed         │      drain asked      │   │ Lost: all received? status : error
//!    ▼                     ▼      ┌──────────► Draining│
//! Ended(error) ◄──────── Lost ◄───┴─────────────────┴──┘
//! ```
//!
//! The exit is published only after the process's own output has reached every cursor and been taken by every waiting
//! one, and no status is ever invented: what is unknown ends in a typed error.

use agentvm_wire::process::StreamEnds;

use super::exit::{ExitStatus, Outcome};
use crate::error::ClientError;

/// Where a process stands.
#[derive(Debug, Clone)]
pub(crate) enum Lifecycle {
    /// `execute` was sent, or waits to be.
    Starting,
    /// It runs.
    Running,
    /// It ended; its descendants' last output is awaited because `exec` asked for it.
    Draining(ExitStatus),
    /// It ended; its output is on the way up to `end`.
    Delivering { status: ExitStatus, end: StreamEnds },
    /// Its outcome is published; `end` is where its own output ended, as far as that is known.
    Ended { end: StreamEnds },
}

/// What happens to it.
#[derive(Debug, Clone)]
pub(crate) enum Event {
    /// `process_started`.
    Started,
    /// `execute` was rejected.
    StartFailed(ClientError),
    /// `process_exited`; `drains` if `output_drained` will follow.
    Exited { status: ExitStatus, end: StreamEnds, drains: bool },
    /// `output_drained`.
    Drained(StreamEnds),
    /// How far output has come.
    Progress(Progress),
    /// The VM or the connection is gone.
    Lost { error: ClientError, progress: Progress },
}

/// How far output has come: received into the rings, and taken by the cursors that wait.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Progress {
    pub(crate) received: StreamEnds,
    pub(crate) delivered: StreamEnds,
}

impl Lifecycle {
    /// Takes one event; returns the outcome to publish, once.
    pub(crate) fn step(&mut self, event: Event) -> Option<Outcome> {
        let (next, outcome) = std::mem::replace(self, Self::ENDED).next(event);
        *self = next;
        outcome
    }

    pub(crate) fn has_ended(&self) -> bool {
        matches!(self, Self::Ended { .. })
    }

    /// Up to where each stream holds the process's own output, once that is known.
    pub(crate) fn own_end(&self) -> StreamEnds {
        match self {
            Self::Delivering { end, .. } | Self::Ended { end } => *end,
            Self::Starting | Self::Running | Self::Draining(_) => StreamEnds::default(),
        }
    }

    /// Ended, and nobody knows where its output did.
    const ENDED: Self = Self::Ended { end: StreamEnds { stdout: None, stderr: None } };

    fn next(self, event: Event) -> (Self, Option<Outcome>) {
        match (self, event) {
            (ended @ Self::Ended { .. }, _) => (ended, None),
            (Self::Starting, Event::Started) => (Self::Running, None),
            (Self::Starting | Self::Running, Event::Exited { status, drains: true, .. }) => {
                (Self::Draining(status), None)
            }
            (Self::Starting | Self::Running, Event::Exited { status, end, .. }) => {
                (Self::Delivering { status, end }, None)
            }
            (Self::Draining(status), Event::Drained(end)) => (Self::Delivering { status, end }, None),
            (Self::Delivering { status, end }, Event::Progress(progress)) => {
                if reaches(progress.delivered, end) {
                    (Self::Ended { end }, Some(Ok(status)))
                } else {
                    (Self::Delivering { status, end }, None)
                }
            }
            (Self::Delivering { status, end }, Event::Lost { error, progress }) => {
                let complete = reaches(progress.received, end);
                (Self::Ended { end }, Some(if complete { Ok(status) } else { Err(error) }))
            }
            (_, Event::StartFailed(error) | Event::Lost { error, .. }) => (Self::ENDED, Some(Err(error))),
            (state, _) => (state, None),
        }
    }
}

/// Whether output has come as far as the process itself wrote, on every stream there is.
fn reaches(progress: StreamEnds, end: StreamEnds) -> bool {
    let reached = |progress: Option<u64>, end: Option<u64>| match (progress, end) {
        (Some(progress), Some(end)) => progress >= end,
        _ => true,
    };
    reached(progress.stdout, end.stdout) && reached(progress.stderr, end.stderr)
}
