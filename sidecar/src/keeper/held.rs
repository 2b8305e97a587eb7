//! A process that is not traced, held by a pidfd: its end is told, and its pid cannot be mistaken for another one's.

use std::os::fd::OwnedFd;

use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::proc::Proc;
use super::sighting::{Subject, What};
use crate::sys::pidfd::exit_status;

/// What tells one program that a process executes from the next ([`Proc::image`]).
pub(super) type Image = Option<[u64; 4]>;

/// A process.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) who: Subject,
    /// Readable once it has ended, with all its threads.
    pub(super) pidfd: OwnedFd,
    /// As it was last seen.
    pub(super) image: Image,
}

impl Held {
    pub(super) fn hold(pid: Pid, who: Subject) -> rustix::io::Result<Self> {
        Ok(Self { who, pidfd: pidfd_open(pid, PidfdFlags::empty())?, image: None })
    }

    /// Whether it executes another program than before. Where the stack lies is known last.
    pub(super) fn has_executed(&mut self, proc: &Proc, pid: Pid) -> bool {
        let image = proc.image(pid).filter(|[_, stack, ..]| *stack != 0);
        let other = image.is_some() && image != self.image;
        if other {
            self.image = image;
        }
        other
    }

    /// How it has ended; `code` is what it was about to exit with, if nobody can tell.
    pub(super) fn end(&self, proc: &Proc, pid: Pid, code: Option<u8>) -> What {
        let of_zombie = || {
            let status = proc.zombie(pid);
            // If the pid is still its own now, it was so then.
            status.filter(|_| proc.see(pid).is_some_and(|seen| seen.who.key == self.who.key))
        };
        let of_reaped = || exit_status(&self.pidfd);
        // It may be reaped in between.
        match of_reaped().or_else(of_zombie).or_else(of_reaped) {
            Some(status) => What::ended_with(status),
            None => What::Exited { code, signal: None },
        }
    }
}
