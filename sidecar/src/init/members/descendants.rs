//! The members of a VM without namespaces: init, which is a subreaper (`PR_SET_CHILD_SUBREAPER(2const)`), and its
//! descendants.
//!
//! The mark of a tree is its session: that of whichever ancestor is init's own child. Each started process leads a session
//! and is a subreaper itself, so that all its descendants stay below it for as long as it lives. After that, who has left
//! both session and parents is nobody's.

use std::collections::{BTreeMap, HashSet};
use std::os::fd::AsFd as _;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, Signal, getpid, pidfd_open, pidfd_send_signal};
use rustix::time::Timespec;

use super::super::place::Place;
use super::super::stat::Stat;
use super::super::table::Mark;
use super::{Census, Members};
use crate::sys::signals;
use crate::sys::wait::next_change;

/// Passes that stop everybody before they are killed; members that continue each other are killed while they fork.
const STOPPING_PASSES: usize = 64;

/// Between two passes that kill, unless somebody ends before.
const PAUSE: Duration = Duration::from_millis(5);

impl Members {
    pub(super) fn pids_below(&self, init: Pid) -> Vec<Pid> {
        let mut pids: Vec<Pid> = self.walk(init).into_iter().map(|(pid, _)| pid).chain([init]).collect();
        pids.sort_unstable_by_key(|pid| pid.as_raw_nonzero());
        pids
    }

    pub(super) fn census_below(&self, init: Pid) -> Census {
        let mut trees: BTreeMap<Mark, Vec<Pid>> = BTreeMap::new();
        let mut pids = HashSet::from([init]);
        for (pid, mark) in self.walk(init) {
            pids.insert(pid);
            if let Some(mark) = mark {
                trees.entry(mark).or_default().push(pid);
            }
        }
        Census { pids, trees }
    }

    /// The tree of one process; `None` if it has ended or is no descendant.
    pub(super) fn mark_below(&self, init: Pid, pid: Pid) -> Option<Mark> {
        let mut stat = self.stat(pid).filter(lives)?;
        loop {
            let parent = i32::try_from(stat.ppid).ok().and_then(Pid::from_raw)?;
            if parent == init {
                return Some(Mark(stat.sid.into()));
            }
            stat = self.stat(parent)?;
        }
    }

    /// Everybody but init and the caller.
    pub(super) fn others(&self) -> Vec<Pid> {
        let (init, own) = (self.init(), getpid());
        self.pids().unwrap_or_default().into_iter().filter(|pid| *pid != init && *pid != own).collect()
    }

    /// Signals a descendant, and never who got its pid.
    pub(super) fn signal_other(&self, pid: Pid, signal: Signal) {
        if let Ok(pidfd) = pidfd_open(pid, PidfdFlags::empty())
            && self.mark(pid).is_some()
        {
            // Fails only if it has ended since.
            let _ = pidfd_send_signal(&pidfd, signal);
        }
    }

    /// Ends all descendants of this process and collects them; returns when there are none.
    pub(crate) fn end_all(&self) {
        let mut stopped = HashSet::new();
        for _ in 0..STOPPING_PASSES {
            let new: Vec<Pid> = self.others().into_iter().filter(|pid| stopped.insert(*pid)).collect();
            if new.is_empty() {
                break;
            }
            for pid in new {
                self.signal_other(pid, Signal::STOP);
            }
        }
        // Without it, a pass comes after each pause.
        let changes = signals::child_changes().ok();
        loop {
            for pid in self.others() {
                self.signal_other(pid, Signal::KILL);
            }
            while let Ok(Some(_)) = next_change() {}
            if self.others().is_empty() {
                return;
            }
            let pause = Timespec { tv_sec: 0, tv_nsec: PAUSE.subsec_nanos().into() };
            let mut watched: Vec<_> =
                changes.iter().map(|changes| PollFd::new(changes, PollFlags::IN)).collect();
            let _ = poll(&mut watched, Some(&pause));
        }
    }

    /// All descendants of init with their marks, parents first. Those that have ended have none.
    fn walk(&self, init: Pid) -> Vec<(Pid, Option<Mark>)> {
        let mut pending: Vec<(Pid, Option<Mark>)> =
            self.children(init).into_iter().map(|child| (child, None)).collect();
        let mut found = Vec::new();
        while let Some((pid, inherited)) = pending.pop() {
            let Some(stat) = self.stat(pid) else { continue };
            let mark = inherited.unwrap_or(Mark(stat.sid.into()));
            found.push((pid, lives(&stat).then_some(mark)));
            pending.extend(self.children(pid).into_iter().map(|child| (child, Some(mark))));
        }
        found
    }

    fn stat(&self, pid: Pid) -> Option<Stat> {
        Place::of(self.proc.as_fd(), pid).ok()?.stat()
    }

    /// Of all its threads (`proc_pid_task_tid_children(5)`).
    fn children(&self, pid: Pid) -> Vec<Pid> {
        const LARGEST_BYTES: usize = 1 << 20;
        let Ok(place) = Place::of(self.proc.as_fd(), pid) else { return Vec::new() };
        let threads = place.numbers("task").unwrap_or_default();
        let texts = threads
            .into_iter()
            .filter_map(|thread| place.read(&format!("task/{thread}/children"), 0, LARGEST_BYTES));
        let children = texts.flat_map(|text| {
            let text = String::from_utf8_lossy(&text).into_owned();
            text.split_whitespace()
                .filter_map(|pid| pid.parse().ok())
                .filter_map(Pid::from_raw)
                .collect::<Vec<_>>()
        });
        children.collect()
    }
}

fn lives(stat: &Stat) -> bool {
    !stat.is_over()
}
