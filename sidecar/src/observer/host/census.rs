//! Who is who on the host: gives every process its key, and tells the end of a process from that of a thread.

use std::collections::{BTreeSet, HashMap};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use agentvm_wire::observer::{ObserverBackend, ObserverEvent, ProcessKey};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{PidfdFlags, pidfd_open};
use rustix::time::Timespec;

use super::super::sighted;
use super::connector::Message;
use crate::init::{Stat, now_ns, ticks_at};
use crate::keeper::{Key, Proc, What, pid_of};
use crate::sys::pidfd::exit_status;

const AT_ONCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// A thread is told to have ended a moment after it has; the last may tell another status than the main one.
const LAST_WORD: Duration = Duration::from_millis(10);

/// Every process there is.
#[derive(Debug)]
pub(super) struct Census {
    proc: Proc,
    known: HashMap<u32, Known>,
    /// Those of processes that have several, all of which were told of.
    threads: HashMap<u32, BTreeSet<u32>>,
    lingering: Vec<Lingering>,
}

#[derive(Debug, Clone, Copy)]
struct Known {
    key: ProcessKey,
    parent: Option<ProcessKey>,
    /// It has, or had, more threads than one.
    threaded: bool,
    /// All its threads were told of.
    exact: bool,
}

/// A process whose main thread has ended, while others may go on of which not all were told.
#[derive(Debug)]
struct Lingering {
    pid: u32,
    /// Readable once all have; none if it was reaped before.
    pidfd: Option<OwnedFd>,
    /// How and when the last has ended that told so.
    status: u32,
    at_ns: u64,
    /// When it was found that all have.
    over: Option<Instant>,
}

impl Census {
    /// Finds out who is there. What happens meanwhile must be told afterwards.
    pub(super) fn begin() -> rustix::io::Result<Self> {
        let mut census = Self {
            proc: Proc::open()?,
            known: HashMap::new(),
            threads: HashMap::new(),
            lingering: Vec::new(),
        };
        census.look_anew();
        Ok(census)
    }

    /// Finds out again, after something was lost; tells who is new.
    pub(super) fn look_anew(&mut self) -> Vec<ObserverEvent> {
        let stats: HashMap<u32, Stat> = pids().filter_map(|pid| Some((pid, self.stat(pid)?))).collect();
        let known = |pid: &u32, stat: &Stat| {
            let key = |pid: u32, stat: &Stat| ProcessKey { pid, start_ticks: stat.start_ticks };
            let parent = stats.get(&stat.ppid).map(|parent| key(stat.ppid, parent));
            (*pid, Known { key: key(*pid, stat), parent, threaded: stat.threads > 1, exact: false })
        };
        let mut now: HashMap<u32, Known> = stats.iter().map(|(pid, stat)| known(pid, stat)).collect();
        let mut new = Vec::new();
        now.retain(|pid, known| match self.known.get(pid).filter(|before| before.key == known.key) {
            // Who made it, not who has taken it over.
            Some(before) => {
                known.parent = before.parent;
                true
            }
            // The end of one that is over was told, or is lost.
            None if stats.get(pid).is_none_or(Stat::is_over) => false,
            None => {
                new.push(*known);
                true
            }
        });
        self.known = now;
        self.threads.clear();
        self.lingering.retain(|lingering| self.known.contains_key(&lingering.pid));
        adopted(new)
    }

    fn stat(&self, pid: u32) -> Option<Stat> {
        self.proc.stat(pid_of(pid)?)
    }

    /// Everybody, as events that tell that they were there before.
    pub(super) fn everybody(&self) -> Vec<ObserverEvent> {
        adopted(self.known.values().copied().collect())
    }

    /// What a message tells.
    pub(super) fn take(&mut self, message: Message) -> Vec<ObserverEvent> {
        match message {
            Message::Forked { pid, parent, at_ns } => self.forked(pid, parent, at_ns),
            Message::Threaded { pid, thread } => {
                if let Some(known) = self.known.get_mut(&pid) {
                    known.threaded = true;
                    if known.exact {
                        self.threads.entry(pid).or_insert_with(|| BTreeSet::from([pid])).insert(thread);
                    }
                }
                Vec::new()
            }
            Message::Ended { pid, thread, status, at_ns } if self.threads.contains_key(&pid) => {
                self.thread_ended(pid, thread, status, at_ns)
            }
            Message::Executed { pid, at_ns } => self.executed(pid, at_ns),
            Message::Ended { pid, thread, status, at_ns } if pid == thread => {
                self.main_thread_ended(pid, status, at_ns)
            }
            Message::Ended { pid, status, at_ns, .. } => {
                if let Some(lingering) = self.lingering.iter_mut().find(|lingering| lingering.pid == pid) {
                    (lingering.status, lingering.at_ns) = (status, at_ns);
                }
                Vec::new()
            }
            Message::Answer { .. } => Vec::new(),
        }
    }

    /// What is readable when the last thread of somebody has ended.
    pub(super) fn watched(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let waits = self.lingering.iter().filter(|lingering| lingering.over.is_none());
        waits.filter_map(|lingering| Some(lingering.pidfd.as_ref()?.as_fd()))
    }

    /// How long to wait for messages before [`Self::settle`] can tell more.
    pub(super) fn pause(&self) -> Option<Timespec> {
        let is_over = self.lingering.iter().any(|lingering| lingering.over.is_some());
        is_over.then_some(Timespec { tv_sec: 0, tv_nsec: LAST_WORD.subsec_nanos().into() })
    }

    /// Tells the ends of processes with threads, once every message was taken.
    pub(super) fn settle(&mut self) -> Vec<ObserverEvent> {
        for lingering in &mut self.lingering {
            if lingering.pidfd.as_ref().is_none_or(has_ended) {
                lingering.over.get_or_insert_with(Instant::now);
            }
        }
        let is_settled =
            |lingering: &mut Lingering| lingering.over.is_some_and(|over| over.elapsed() >= LAST_WORD);
        let settled: Vec<_> = self.lingering.extract_if(.., is_settled).collect();
        settled.into_iter().filter_map(|lingering| self.ended_last(lingering)).collect()
    }

    fn forked(&mut self, pid: u32, parent: u32, at_ns: u64) -> Vec<ObserverEvent> {
        // Of one that is over already, the time of the message: a tick later at most.
        let start_ticks = self.stat(pid).map_or_else(|| ticks_at(at_ns), |stat| stat.start_ticks);
        let found = self.known.get(&pid).map(|known| known.key.start_ticks);
        // It was found when all were looked at.
        if found.is_some_and(|found| found.abs_diff(start_ticks) <= 1) {
            return Vec::new();
        }
        // Whoever had this pid has ended.
        let before = self.lingering.extract_if(.., |lingering| lingering.pid == pid).next();
        let before = before.and_then(|before| self.ended_last(before));
        let parent = self.known.get(&parent).map(|parent| parent.key);
        let known = Known { key: ProcessKey { pid, start_ticks }, parent, threaded: false, exact: true };
        self.threads.remove(&pid);
        self.known.insert(pid, known);
        let of = Key { host_pid: pid, start_ticks };
        before.into_iter().chain([known.event(What::Forked { parent: of }, at_ns)]).collect()
    }

    fn executed(&mut self, pid: u32, at_ns: u64) -> Vec<ObserverEvent> {
        // Another thread than the main one may have, and is that now.
        self.threads.remove(&pid);
        self.lingering.retain(|lingering| lingering.pid != pid);
        let Some((known, of)) = self.known.get_mut(&pid).zip(pid_of(pid)) else { return Vec::new() };
        (known.threaded, known.exact) = (false, true);
        let mut executed = self.proc.executed(of);
        executed.truncated |= executed.path.is_empty() || executed.argv.is_empty();
        vec![known.event(What::Executed(executed), at_ns)]
    }

    fn thread_ended(&mut self, pid: u32, thread: u32, status: u32, at_ns: u64) -> Vec<ObserverEvent> {
        let Some(threads) = self.threads.get_mut(&pid) else { return Vec::new() };
        threads.remove(&thread);
        if !threads.is_empty() {
            return Vec::new();
        }
        self.ended(pid, status, at_ns).into_iter().collect()
    }

    fn main_thread_ended(&mut self, pid: u32, status: u32, at_ns: u64) -> Vec<ObserverEvent> {
        let pidfd = pid_of(pid).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        if !self.known.get(&pid).is_some_and(|known| known.threaded) {
            // Of a thread that executed a program in the main one's stead that may be told last.
            let is_over = pidfd.as_ref().is_none_or(has_ended);
            return is_over.then(|| self.ended(pid, status, at_ns)).flatten().into_iter().collect();
        }
        self.lingering.push(Lingering { pid, pidfd, status, at_ns, over: None });
        Vec::new()
    }

    fn ended_last(
        &mut self,
        Lingering { pid, pidfd, status, at_ns, .. }: Lingering,
    ) -> Option<ObserverEvent> {
        let of_reaped = pidfd.and_then(exit_status).map(i32::cast_unsigned);
        self.ended(pid, of_reaped.unwrap_or(status), at_ns)
    }

    fn ended(&mut self, pid: u32, status: u32, at_ns: u64) -> Option<ObserverEvent> {
        self.threads.remove(&pid);
        let known = self.known.remove(&pid)?;
        Some(known.event(What::ended_with(status.cast_signed()), at_ns))
    }
}

impl Known {
    fn event(&self, what: What, at_ns: u64) -> ObserverEvent {
        let mut event = sighted::event(what, at_ns, ObserverBackend::Connector);
        (event.pid, event.key, event.parent_key) = (Some(self.key.pid), Some(self.key), self.parent);
        event
    }
}

/// Parents before children.
fn adopted(mut those: Vec<Known>) -> Vec<ObserverEvent> {
    those.sort_unstable_by_key(|known| (known.key.start_ticks, known.key.pid));
    let at_ns = now_ns();
    those.iter().map(|known| known.event(What::Adopted { parent: None }, at_ns)).collect()
}

fn pids() -> impl Iterator<Item = u32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten();
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

fn has_ended(pidfd: &OwnedFd) -> bool {
    poll(&mut [PollFd::new(pidfd, PollFlags::IN)], Some(&AT_ONCE)) != Ok(0)
}
