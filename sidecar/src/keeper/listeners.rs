//! Listeners of watched trees, which the sidecar holds beside the keeper: once that is gone it answers them, so that what
//! was watched runs on.

use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;

use crate::sys::notification::{Inbox, let_go, taken_last};

/// Those of one keeper, each with the memory of its inbox.
#[derive(Debug, Default)]
pub(super) struct Listeners(Vec<[OwnedFd; 2]>);

impl Listeners {
    /// Adds one, and lets go of those that nobody waits at any more.
    pub(super) fn add(&mut self, came: Vec<OwnedFd>) {
        self.0.extend(<[OwnedFd; 2]>::try_from(came));
        self.wait(Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
    }

    /// Answers all, in a thread that ends when nobody is left who could ask. The keeper must have ended.
    pub(super) fn answer(mut self) {
        if self.0.is_empty() {
            return;
        }
        let answering = std::thread::Builder::new().name("listeners".to_owned()).spawn(move || {
            for [listener, memory] in &self.0 {
                // Most have been answered.
                let _ = taken_last(memory).map(|call| let_go(listener, call));
            }
            if let Ok(mut inbox) = Inbox::new() {
                self.answer_what_comes(&mut inbox);
            }
        });
        if let Err(error) = answering {
            tracing::error!(%error, "what a keeper watched cannot be answered");
        }
    }

    fn answer_what_comes(&mut self, inbox: &mut Inbox) {
        while !self.0.is_empty() {
            for ready in self.wait(None) {
                let [listener, _] = &self.0[ready];
                let _ = inbox.receive(listener).map(|call| let_go(listener, call.id));
            }
        }
    }

    /// Waits until somebody asks, and lets go of those at whom nobody can any more: who asks among those that stay.
    fn wait(&mut self, limit: Option<&Timespec>) -> Vec<usize> {
        let mut watched: Vec<_> =
            self.0.iter().map(|[listener, _]| PollFd::new(listener, PollFlags::IN)).collect();
        if poll(&mut watched, limit).is_err() {
            return Vec::new();
        }
        let states: Vec<PollFlags> = watched.iter().map(PollFd::revents).collect();
        let gone = |state: &PollFlags| state.contains(PollFlags::HUP);
        let mut state = states.iter();
        self.0.retain(|_| !state.next().is_some_and(gone));
        let stay = states.iter().filter(|state| !gone(state)).enumerate();
        stay.filter(|(_, state)| state.contains(PollFlags::IN)).map(|(at, _)| at).collect()
    }
}
