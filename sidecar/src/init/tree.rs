//! Signalling a whole tree: everything that shares a started process's UTS namespace, however it left its parent,
//! group or session.
//!
//! SIGKILL is not one pass, because members fork meanwhile:
//!
//! ```text
//!   stopping ── a pass that finds nobody new ──► killing ── a pass that finds nobody ──► leaving ── all collected ──► done
//!   (SIGSTOP to everybody not seen before)       (SIGKILL to everybody, to the root last)
//! ```
//!
//! The root's end is told to the client as soon as it comes, so it comes when nobody else lives: whoever learns of it finds
//! nothing of the tree any more.
//!
//! Who is killed belongs to no namespace any more a moment before init can collect it, and is in the table until then.
//!
//! The kernel gives the inode of a namespace to the next one as soon as the last member is gone, which would make a
//! process that is started meanwhile look like a member. So the namespace is held open for as long as it is looked for.
//!
//! A stopped process cannot fork (`fork(2)` is abandoned when a signal is pending), so the first phase ends. Each pass
//! is bounded by the pid limit, and other work is done between passes.

use std::collections::HashSet;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use agentvm_wire::id::ProcessId;
use rustix::process::{Pid, Signal};

use super::members::{Census, Members};
use super::messages::Reply;
use super::server::{Gone, Server};
use super::table::Mark;

/// Wait before looking whether the killed are gone; doubled each time, up to the second.
const FIRST_WAIT: Duration = Duration::from_micros(200);
const LAST_WAIT: Duration = Duration::from_millis(20);

/// How long the dead may take to be collected once nobody lives; a tracer in another tree can keep one for longer.
const LEAVING_LIMIT: Duration = Duration::from_millis(500);

/// How long the others may take to go before the root is killed without waiting for them.
const ROOT_LIMIT: Duration = Duration::from_millis(500);

/// How long the killed may take to go, e.g. while the kernel writes for one of them.
const DEADLINE: Duration = Duration::from_secs(10);

/// A tree that is being killed.
#[derive(Debug)]
pub(super) struct TreeKill {
    /// Whom to answer; nobody asked for the end of a process whose time is up.
    token: Option<u64>,
    mark: Mark,
    /// Keeps the mark from becoming that of another tree.
    _pin: OwnedFd,
    /// The started process, unless it has ended.
    root: Option<Pid>,
    /// When the root is killed at the latest, once the others are.
    root_until: Option<Instant>,
    stopped: HashSet<Pid>,
    killed: HashSet<Pid>,
    stopping: bool,
    /// Until when the dead are awaited, once nobody lives.
    leaving: Option<Instant>,
    wait: Duration,
    deadline: Instant,
    /// When the next pass is due.
    pub(super) next: Instant,
}

impl TreeKill {
    fn new(token: Option<u64>, mark: Mark, pin: OwnedFd, root: Option<Pid>) -> Self {
        let now = Instant::now();
        Self {
            token,
            mark,
            _pin: pin,
            root,
            root_until: None,
            stopped: HashSet::new(),
            killed: HashSet::new(),
            stopping: true,
            leaving: None,
            wait: FIRST_WAIT,
            deadline: now + DEADLINE,
            next: now,
        }
    }

    /// One pass over the members just found. True when nobody is left, or time is up.
    fn pass(&mut self, members: &Members, census: &Census, now: Instant) -> bool {
        let found = census.trees.get(&self.mark).map_or(&[][..], Vec::as_slice);
        if self.stopping {
            let new: Vec<Pid> = found.iter().copied().filter(|pid| self.stopped.insert(*pid)).collect();
            for pid in &new {
                members.signal(*pid, self.mark, Signal::STOP);
            }
            self.stopping = !new.is_empty();
            return found.is_empty();
        }
        let root_until = *self.root_until.get_or_insert(now + ROOT_LIMIT);
        let root_waits = now < root_until && found.iter().any(|pid| Some(*pid) != self.root);
        for pid in found.iter().filter(|pid| !root_waits || Some(**pid) != self.root) {
            if members.signal(*pid, self.mark, Signal::KILL) {
                self.killed.insert(*pid);
            }
        }
        self.next = now + self.wait;
        self.wait = (self.wait * 2).min(LAST_WAIT);
        let nobody_lives = found.is_empty();
        let leaving = nobody_lives.then(|| *self.leaving.get_or_insert(now + LEAVING_LIMIT));
        let over = leaving.is_some_and(|until| until <= now || census.pids.is_disjoint(&self.killed));
        over || self.deadline <= now
    }

    fn reply(&self) -> Option<Reply> {
        signaled(self.token, self.killed.len())
    }
}

fn signaled(token: Option<u64>, delivered: usize) -> Option<Reply> {
    Some(Reply::Signaled { token: token?, delivered: u32::try_from(delivered).unwrap_or(u32::MAX) })
}

impl Server<'_> {
    /// Signals a process and all its descendants, also when it has ended itself; the answer to SIGKILL comes when nobody
    /// is left.
    pub(super) fn signal_tree(
        &mut self,
        token: Option<u64>,
        id: ProcessId,
        signal: Signal,
    ) -> Result<(), Gone> {
        let root = self.table.by_id(id).map(|process| process.pid);
        let Some((mark, pin)) = self.pin_tree(id)? else {
            return signaled(token, 0).map_or(Ok(()), |reply| self.reply(&reply));
        };
        if signal == Signal::KILL {
            // The turn ends with a pass.
            self.kills.push(TreeKill::new(token, mark, pin, root));
            return Ok(());
        }
        let found = self.members.of_tree(mark);
        let delivered = found.into_iter().filter(|pid| self.members.signal(*pid, mark, signal)).count();
        signaled(token, delivered).map_or(Ok(()), |reply| self.reply(&reply))
    }

    /// The mark of a tree that has members, held so that it stays theirs.
    pub(super) fn pin_tree(&mut self, id: ProcessId) -> Result<Option<(Mark, OwnedFd)>, Gone> {
        let Some(mark) = self.table.mark_of(id) else { return Ok(None) };
        let root = self.table.by_id(id).map(|process| process.pid);
        let Some((member, pin)) = self.members.pin(mark, root) else { return Ok(None) };
        // It may have been another's before it was held: that of a process which has just executed its command, and
        // whose mark is not known yet, or that of the spare, whose name is not.
        self.finish_decided_starts()?;
        let is_starting = self.table.by_pid(member).is_some_and(|process| process.is_starting());
        let starts = is_starting || self.spare_mark() == Some(mark);
        Ok((!starts && self.table.mark_of(id) == Some(mark)).then_some((mark, pin)))
    }

    /// One pass over each tree that is due; the ended ones are answered. However many are due, `/proc` is read once.
    pub(super) fn kill_trees(&mut self) -> Result<(), Gone> {
        let now = Instant::now();
        if self.kills.iter().all(|kill| kill.next > now) {
            return Ok(());
        }
        let mut done = Vec::new();
        let (members, census) = (&self.members, self.members.census());
        self.kills.retain_mut(|kill| {
            let over = kill.next <= now && kill.pass(members, &census, now);
            if over {
                done.extend(kill.reply());
            }
            !over
        });
        done.iter().try_for_each(|reply| self.reply(reply))
    }
}
