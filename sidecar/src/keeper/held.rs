//! A process that is not traced, held by a pidfd: its end is told, and its pid cannot be mistaken for another one's.

use std::os::fd::OwnedFd;

use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::proc::{Image, Proc, Seen};
use super::sighting::{Subject, What};
use crate::sys::pidfd::{exit_status, has_pid};

/// A process.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) who: Subject,
    /// Readable once it has ended, with all its threads.
    pub(super) pidfd: OwnedFd,
    /// As it was last seen.
    pub(super) image: Option<Image>,
}

impl Held {
    pub(super) fn hold(pid: Pid, seen: Seen) -> rustix::io::Result<Self> {
        let Seen { who, image, .. } = seen;
        Ok(Self { who, pidfd: pidfd_open(pid, PidfdFlags::empty())?, image: Some(image) })
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

    /// Whether the kernel tells how it has ended, now that it was reaped.
    pub(super) fn is_told(&self) -> bool {
        exit_status(&self.pidfd).is_some()
    }

    /// How it has ended; `code` is what it was about to exit with, if nobody can tell.
    pub(super) fn end(&self, proc: &Proc, pid: Pid, code: Option<u8>) -> What {
        // If the pid is still its own now, it was so then.
        let of_zombie = || proc.zombie(pid).filter(|_| has_pid(&self.pidfd));
        let of_reaped = || exit_status(&self.pidfd);
        // It may be reaped in between.
        match of_reaped().or_else(of_zombie).or_else(of_reaped) {
            Some(status) => What::ended_with(status),
            None => What::Exited { code, signal: None },
        }
    }
}
