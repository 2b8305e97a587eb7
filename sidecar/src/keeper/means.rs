//! By which means a tree is seen: the first of the ladder that can be had for processes, and a listener for the rest.

use std::os::fd::OwnedFd;

use rustix::io::Errno;

use super::calls;
use super::handshake::{Untrapped, Waiting};
use super::sighting::{Backend, Orders, Wanted};
use crate::sys::ptrace::seize;

/// What a tree is seen by.
pub(super) struct Means {
    /// Processes, if they are wanted.
    pub(super) process: Option<Backend>,
    /// With what it is asked about.
    pub(super) listener: Option<(OwnedFd, Wanted)>,
}

/// A child that is not watched.
pub(super) struct Untaken {
    pub(super) errno: Errno,
    /// It can do without.
    pub(super) goes_on: bool,
}

impl Means {
    /// Takes a child that waits. What it is seized by is this thread.
    pub(super) fn take(orders: &Orders, waiting: &Waiting<'_>) -> Result<Self, Untaken> {
        let wanted = orders.wanted;
        let mut means = Self { process: None, listener: None };
        let mut refused = Errno::OPNOTSUPP;
        for backend in orders.ladder.iter().filter(|_| wanted.process) {
            let taken = match backend {
                Backend::Ptrace => seize(waiting.pid, orders.require_exact),
                Backend::Notification => means.trap(waiting, wanted)?,
                Backend::Polling => Ok(()),
            };
            match taken {
                Ok(()) => {
                    means.process = Some(*backend);
                    break;
                }
                Err(errno) => refused = errno,
            }
        }
        let others = Wanted { process: false, ..wanted };
        if means.listener.is_none()
            && others != Wanted::default()
            && let Err(errno) = means.trap(waiting, others)?
        {
            refused = errno;
        }
        let any = means.process.is_some() || means.listener.is_some();
        if any { Ok(means) } else { Err(Untaken { errno: refused, goes_on: true }) }
    }

    fn trap(&mut self, waiting: &Waiting<'_>, wanted: Wanted) -> Result<Result<(), Errno>, Untaken> {
        match waiting.trap(calls::program(wanted)) {
            Ok(listener) => {
                self.listener = Some((listener, wanted));
                Ok(Ok(()))
            }
            Err(Untrapped::Refused(errno)) => Ok(Err(errno)),
            Err(Untrapped::Lost(errno)) => Err(Untaken { errno, goes_on: false }),
        }
    }

    /// Of processes, or of what else is seen.
    pub(super) fn backend(&self) -> Backend {
        self.process.unwrap_or(Backend::Notification)
    }
}
