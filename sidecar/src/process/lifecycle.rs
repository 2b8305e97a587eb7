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
//! Each `execute` is answered exactly once, and `process_started` always comes before `process_exited`.

use agentvm_wire::id::RequestId;

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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    Started,
    StartFailed,
    Exited,
    /// The VM is gone.
    Lost,
}

/// What to tell the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    AnswerStarted(RequestId),
    AnswerFailed(RequestId),
    TellExit,
}

impl Lifecycle {
    /// Takes one event and returns what follows, in order.
    pub(crate) fn step(&mut self, event: Event) -> Vec<Action> {
        let (next, actions) = match (*self, event) {
            (Self::Starting { request }, Event::Started) => (Self::Running, vec![Action::AnswerStarted(request)]),
            (Self::Starting { request }, Event::StartFailed | Event::Lost) => {
                (Self::Ended, vec![Action::AnswerFailed(request)])
            }
            (Self::Starting { request }, Event::Exited) => {
                (Self::Ended, vec![Action::AnswerStarted(request), Action::TellExit])
            }
            (Self::Running, Event::Exited) => (Self::Ended, vec![Action::TellExit]),
            (Self::Running, Event::Lost) => (Self::Ended, Vec::new()),
            (state @ (Self::Running | Self::Ended), _) => (state, Vec::new()),
        };
        *self = next;
        actions
    }

    pub(crate) fn has_ended(self) -> bool {
        self == Self::Ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUEST: RequestId = RequestId(7);

    /// Every sequence of events, up to a length that visits every state from every state.
    fn sequences(length: u32) -> impl Iterator<Item = Vec<Event>> {
        const EVENTS: [Event; 4] = [Event::Started, Event::StartFailed, Event::Exited, Event::Lost];
        (0..4usize.pow(length))
            .map(move |n| (0..length).map(|digit| EVENTS[n / 4usize.pow(digit) % 4]).collect())
    }

    #[test]
    fn whatever_happens_execute_is_answered_once_and_the_exit_told_once_and_last() {
        for sequence in sequences(5) {
            let mut lifecycle = Lifecycle::Starting { request: REQUEST };
            let actions: Vec<Action> = sequence.iter().flat_map(|event| lifecycle.step(*event)).collect();
            let answers = actions.iter().filter(|action| **action != Action::TellExit).count();
            assert_eq!(answers, 1, "{sequence:?}");
            let exits = actions.iter().filter(|action| **action == Action::TellExit).count();
            assert!(exits <= 1, "{sequence:?}");
            if exits == 1 {
                assert_eq!(actions, [Action::AnswerStarted(REQUEST), Action::TellExit], "{sequence:?}");
            }
        }
    }
}
