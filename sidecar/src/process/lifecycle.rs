//! The life of one process as the sidecar sees it: a pure step from event to event.
//!
//! ```text
//!                Started                     Exited
//! Starting ─────────────────► Running ───────────────────► Ended
//!    │  answer: started                 event: exited
//!    │
//!    ├─ StartFailed ─► Ended   answer: rejected
//!    └─ Exited ──────► Ended   answer: started, then event: exited (init told the two in one breath)
//! ```
//!
//! A timeout that runs out before the end changes no state: init is told, and what init then says decides.
//!
//! Each `execute` is answered exactly once, and `process_started` always comes before `process_exited`.

use agentvm_wire::id::RequestId;

use crate::init::{Exit, StartStep};

/// Where a process stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lifecycle {
    /// Init was asked to start it.
    Starting { request: RequestId },
    /// It runs.
    Running,
    /// It ended, or never started.
    Ended,
}

/// What init says of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Event {
    Started {
        pid: u32,
        started_at_ms: u64,
        start_ticks: Option<u64>,
    },
    StartFailed {
        step: StartStep,
        errno: i32,
    },
    Exited(Exit),
    /// Its timeout has run out.
    Expired,
    /// Its tree has used up its CPU time, and is being killed.
    CpuLimit,
    /// The VM is gone.
    Lost,
}

/// Why a process never ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failure {
    /// Init could not start it.
    Step(StartStep, i32),
    /// The VM ended first.
    VmGone,
}

/// What to tell the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Action {
    AnswerStarted(RequestId),
    AnswerFailed(RequestId, Failure),
    TellExit(Exit),
    /// Init ends it, or does not start it.
    Expire,
}

impl Lifecycle {
    /// Takes one event and returns what follows, in order.
    pub(crate) fn step(&mut self, event: Event) -> Vec<Action> {
        let (next, actions) = match (*self, event) {
            (Self::Starting { request }, Event::Started { .. }) => {
                (Self::Running, vec![Action::AnswerStarted(request)])
            }
            (Self::Starting { request }, Event::StartFailed { step, errno }) => {
                (Self::Ended, vec![Action::AnswerFailed(request, Failure::Step(step, errno))])
            }
            (Self::Starting { request }, Event::Lost) => {
                (Self::Ended, vec![Action::AnswerFailed(request, Failure::VmGone)])
            }
            (Self::Starting { request }, Event::Exited(exit)) => {
                (Self::Ended, vec![Action::AnswerStarted(request), Action::TellExit(exit)])
            }
            (Self::Running, Event::Exited(exit)) => (Self::Ended, vec![Action::TellExit(exit)]),
            (Self::Running, Event::Lost) => (Self::Ended, Vec::new()),
            (state @ (Self::Starting { .. } | Self::Running), Event::Expired) => {
                (state, vec![Action::Expire])
            }
            (state, _) => (state, Vec::new()),
        };
        *self = next;
        actions
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUEST: RequestId = RequestId(7);

    const EXIT: Exit = Exit {
        exit_code: Some(3),
        signal: None,
        core_dumped: false,
        user_us: 0,
        sys_us: 0,
        max_rss_bytes: 0,
        exited_at_ms: 0,
    };

    /// Every sequence of events, up to a length that visits every state from every state.
    fn sequences(length: u32) -> impl Iterator<Item = Vec<Event>> {
        let events = [
            Event::Started { pid: 5, started_at_ms: 1, start_ticks: None },
            Event::StartFailed { step: StartStep::Exec, errno: libc::ENOENT },
            Event::Exited(EXIT),
            Event::Expired,
            Event::CpuLimit,
            Event::Lost,
        ];
        (0..6usize.pow(length))
            .map(move |n| (0..length).map(|digit| events[n / 6usize.pow(digit) % 6].clone()).collect())
    }

    #[test]
    fn whatever_happens_execute_is_answered_once_and_the_exit_told_at_most_once_and_last() {
        for sequence in sequences(5) {
            let mut lifecycle = Lifecycle::Starting { request: REQUEST };
            let mut actions: Vec<Action> =
                sequence.iter().flat_map(|event| lifecycle.step(event.clone())).collect();
            actions.retain(|action| *action != Action::Expire);
            let (exits, answers): (Vec<_>, Vec<_>) =
                actions.iter().partition(|action| matches!(action, Action::TellExit(_)));
            let begins = |event: &Event| !matches!(event, Event::Expired | Event::CpuLimit);
            assert_eq!(answers.len(), usize::from(sequence.iter().any(begins)), "{sequence:?}");
            if !exits.is_empty() {
                let expected = [Action::AnswerStarted(REQUEST), Action::TellExit(EXIT)];
                assert_eq!(actions, expected, "{sequence:?}");
            }
        }
    }

    #[test]
    fn a_timeout_after_the_end_is_nothing() {
        for end in [Event::Exited(EXIT), Event::StartFailed { step: StartStep::Exec, errno: 2 }, Event::Lost]
        {
            let mut lifecycle = Lifecycle::Starting { request: REQUEST };
            assert_eq!(lifecycle.step(Event::Expired), [Action::Expire]);
            lifecycle.step(end);
            assert_eq!(lifecycle.step(Event::Expired), []);
        }
    }
}
