//! A timer that is set again only for an earlier moment, or after it has rung: to set one for every call costs more than to
//! answer it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

/// Readable once it rings.
#[derive(Debug)]
pub(super) struct Alarm {
    timer: OwnedFd,
    due: Option<Instant>,
}

impl Alarm {
    pub(super) fn new() -> rustix::io::Result<Self> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        Ok(Self { timer: timerfd_create(TimerfdClockId::Monotonic, flags)?, due: None })
    }

    /// Has it ring after so long, less than a second, or earlier.
    pub(super) fn set(&mut self, after: Duration) {
        let due = Instant::now() + after;
        if self.due.is_none_or(|earlier| due < earlier) {
            let it_value = Timespec { tv_sec: 0, tv_nsec: after.subsec_nanos().into() };
            let once = Itimerspec { it_interval: Timespec::default(), it_value };
            let set = timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once);
            self.due = set.is_ok().then_some(due);
        }
    }

    /// It rings no more.
    pub(super) fn quiet(&mut self) {
        let _ = rustix::io::read(&self.timer, &mut [0; 8]);
        self.due = None;
    }
}

impl AsFd for Alarm {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.timer.as_fd()
    }
}
