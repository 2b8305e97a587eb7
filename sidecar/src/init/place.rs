//! One process in `/proc`.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags, openat, readlinkat};
use rustix::io::Errno;
use rustix::process::Pid;
use rustix::thread::sched_yield;

use super::members::numbers;
use super::stat::{self, Stat};

/// How long that may take on a busy machine; a program may also have taken its arguments away for good.
const COMMAND_LIMIT: Duration = Duration::from_millis(20);

/// Its folder. What is read from here is of this process alone, even if its pid is given away meanwhile.
#[derive(Debug)]
pub(super) struct Place {
    folder: OwnedFd,
}

impl Place {
    /// Finds a process; ESRCH if there is none.
    pub(super) fn of(proc: BorrowedFd<'_>, pid: Pid) -> Result<Self, Errno> {
        Self::open(proc, &pid.as_raw_nonzero().to_string()).ok_or(Errno::SRCH)
    }

    fn open(base: BorrowedFd<'_>, path: &str) -> Option<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        openat(base, path, flags, Mode::empty()).ok().map(|folder| Self { folder })
    }

    pub(super) fn folder(&self) -> BorrowedFd<'_> {
        self.folder.as_fd()
    }

    pub(super) fn stat(&self) -> Option<Stat> {
        stat::parse(&self.read("stat", 0, 4096)?)
    }

    /// Where the kernel tells of the process's memory and files: here, or, if its main thread has ended and others go
    /// on, with one of those. With what is said of it there.
    pub(super) fn of_the_living(self, stat: &Stat) -> (Self, Stat) {
        let found = stat.has_only_lost_its_main_thread().then(|| self.living_thread()).flatten();
        found.unwrap_or_else(|| (self, stat.clone()))
    }

    fn living_thread(&self) -> Option<(Self, Stat)> {
        let threads = self.numbers("task").ok()?;
        threads.into_iter().find_map(|thread| {
            let place = Self::open(self.folder(), &format!("task/{thread}"))?;
            let stat = place.stat().filter(|stat| !stat.is_dead())?;
            Some((place, stat))
        })
    }

    /// Waits for the kernel to finish executing a command: for a moment after the old program is gone the new one has
    /// neither its name nor its arguments.
    pub(super) fn await_command(&self) {
        let begun = Instant::now();
        while self.read("cmdline", 0, 1).is_some_and(|text| text.is_empty())
            && self.stat().is_some_and(|stat| !stat.is_dead())
            && begun.elapsed() < COMMAND_LIMIT
        {
            sched_yield();
        }
    }

    /// At most `limit` bytes of a file from `offset` on.
    pub(super) fn read(&self, path: &str, offset: u64, limit: usize) -> Option<Vec<u8>> {
        let file = openat(&self.folder, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
        let mut file = File::from(file);
        file.seek(SeekFrom::Start(offset)).ok()?;
        let mut text = Vec::with_capacity(limit.min(4096));
        file.take(limit as u64).read_to_end(&mut text).ok()?;
        Some(text)
    }

    /// Where a link points to.
    pub(super) fn link(&self, path: &str) -> Option<Vec<u8>> {
        readlinkat(&self.folder, path, Vec::new()).ok().map(std::ffi::CString::into_bytes)
    }

    /// The entries of a folder that are numbers, in its order.
    pub(super) fn numbers(&self, path: &str) -> Result<Vec<u32>, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        numbers(&openat(&self.folder, path, flags, Mode::empty())?)
    }
}
