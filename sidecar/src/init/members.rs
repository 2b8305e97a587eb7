//! Who is in the VM, and to which started process each belongs: `/proc`, as init sees it.
//!
//! In a sandbox that is everybody, and the UTS namespace of a process marks its tree. Elsewhere it is init and its
//! descendants (`descendants`).

mod descendants;

use std::collections::{BTreeMap, HashSet};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use agentvm_wire::vm::Isolation;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, RawDir, fstat, openat, statat};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, getpid, pidfd_open, pidfd_send_signal};

use super::table::Mark;
use crate::sys::signals;

/// The VM's `/proc`.
#[derive(Debug)]
pub(crate) struct Members {
    proc: OwnedFd,
    scope: Scope,
}

/// Who of those in it belongs to the VM.
#[derive(Debug, Clone, Copy)]
enum Scope {
    Everybody,
    /// This process and its descendants.
    Below(Pid),
}

/// All processes at one moment.
#[derive(Debug)]
pub(super) struct Census {
    /// Those that have ended and were not collected, too.
    pub(super) pids: HashSet<Pid>,
    /// The living ones of each tree.
    pub(super) trees: BTreeMap<Mark, Vec<Pid>>,
}

impl Members {
    /// Those of a VM, for its init.
    pub(super) fn of_vm(isolation: Isolation) -> rustix::io::Result<Self> {
        match isolation {
            Isolation::Sandbox => Self::open(Scope::Everybody),
            _ => Self::descendants(),
        }
    }

    /// This process and its descendants.
    pub(crate) fn descendants() -> rustix::io::Result<Self> {
        Self::open(Scope::Below(getpid()))
    }

    /// The same, opened anew.
    pub(super) fn again(&self) -> rustix::io::Result<Self> {
        Self::open(self.scope)
    }

    fn open(scope: Scope) -> rustix::io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self { proc: openat(CWD, "/proc", flags, Mode::empty())?, scope })
    }

    /// Who starts and reaps all others.
    pub(super) fn init(&self) -> Pid {
        match self.scope {
            Scope::Everybody => Pid::INIT,
            Scope::Below(init) => init,
        }
    }

    /// All processes, rising.
    pub(crate) fn pids(&self) -> rustix::io::Result<Vec<Pid>> {
        if let Scope::Below(init) = self.scope {
            return Ok(self.pids_below(init));
        }
        rustix::fs::seek(&self.proc, rustix::fs::SeekFrom::Start(0))?;
        let pid = |number: u32| i32::try_from(number).ok().and_then(Pid::from_raw);
        Ok(numbers(&self.proc)?.into_iter().filter_map(pid).collect())
    }

    /// Whether nobody but init is left.
    pub(super) fn are_gone(&self) -> bool {
        self.pids().is_ok_and(|pids| pids.len() <= 1)
    }

    /// The tree a process belongs to; `None` if it is gone, a zombie, or has not executed its command yet.
    pub(super) fn mark(&self, pid: Pid) -> Option<Mark> {
        if let Scope::Below(init) = self.scope {
            return self.mark_below(init, pid);
        }
        let stat = self.of_namespace(pid, |path| statat(&self.proc, path, AtFlags::empty()))?;
        Some(Mark(stat.st_ino))
    }

    /// Holds on to the namespace of a tree: as long as the result lives the kernel gives its inode to no other. With
    /// the member it was found by, `likely` if that is one; `None` if there is none.
    pub(super) fn pin(&self, mark: Mark, likely: Option<Pid>) -> Option<(Pid, OwnedFd)> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let open = |pid| {
            if let Scope::Below(init) = self.scope {
                let pin = pidfd_open(pid, PidfdFlags::empty()).ok()?;
                return (self.mark_below(init, pid) == Some(mark)).then_some((pid, pin));
            }
            let pin = self.of_namespace(pid, |path| openat(&self.proc, path, flags, Mode::empty()))?;
            (fstat(&pin).ok()?.st_ino == mark.0).then_some((pid, pin))
        };
        likely.and_then(open).or_else(|| self.of_tree(mark).into_iter().find_map(open))
    }

    /// Looks at the UTS namespace of a process. A main thread that has ended is in none any more, but the process lives
    /// on in its other threads.
    fn of_namespace<T>(&self, pid: Pid, look: impl Fn(&str) -> rustix::io::Result<T>) -> Option<T> {
        let pid = pid.as_raw_nonzero();
        match look(&format!("{pid}/ns/uts")) {
            Ok(found) => Some(found),
            Err(Errno::NOENT) => {
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
                let threads = openat(&self.proc, format!("{pid}/task"), flags, Mode::empty()).ok()?;
                let threads = numbers(&threads).ok()?;
                threads.into_iter().find_map(|thread| look(&format!("{pid}/task/{thread}/ns/uts")).ok())
            }
            Err(_) => None,
        }
    }

    /// All processes of a tree.
    pub(super) fn of_tree(&self, mark: Mark) -> Vec<Pid> {
        self.census().trees.remove(&mark).unwrap_or_default()
    }

    /// Everybody, and who belongs to which tree.
    pub(super) fn census(&self) -> Census {
        // A `/proc` that cannot be read now is read again in the next pass.
        if let Scope::Below(init) = self.scope {
            return self.census_below(init);
        }
        let pids = self.pids().unwrap_or_default();
        let mut trees: BTreeMap<Mark, Vec<Pid>> = BTreeMap::new();
        for pid in &pids {
            if let Some(mark) = self.mark(*pid) {
                trees.entry(mark).or_default().push(*pid);
            }
        }
        Census { pids: pids.into_iter().collect(), trees }
    }

    /// Signals a process if it still belongs to the tree: the pidfd pins who it is before that is looked at.
    pub(super) fn signal(&self, pid: Pid, mark: Mark, signal: Signal) -> bool {
        pidfd_open(pid, PidfdFlags::empty())
            .is_ok_and(|pidfd| self.mark(pid) == Some(mark) && pidfd_send_signal(&pidfd, signal).is_ok())
    }

    /// Signals everybody but the caller and init.
    pub(super) fn signal_everybody(&self, signal: Signal) {
        match self.scope {
            Scope::Everybody => signals::signal_everybody(signal),
            Scope::Below(_) => self.others().into_iter().for_each(|pid| self.signal_other(pid, signal)),
        }
    }

    /// Its folder, for reading files of processes below it.
    pub(super) fn folder(&self) -> BorrowedFd<'_> {
        self.proc.as_fd()
    }
}

/// The entries of a folder that are numbers, in its order.
pub(crate) fn numbers(folder: &OwnedFd) -> rustix::io::Result<Vec<u32>> {
    let mut found = Vec::new();
    let mut buffer = [MaybeUninit::uninit(); 4096];
    let mut entries = RawDir::new(folder, &mut buffer);
    while let Some(entry) = entries.next() {
        let entry = entry?;
        found.extend(entry.file_name().to_str().ok().and_then(|name| name.parse::<u32>().ok()));
    }
    Ok(found)
}
