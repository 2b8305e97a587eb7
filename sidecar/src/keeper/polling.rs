//! A tree seen by looking at `/proc` again and again, where nothing better can be had: what begins and ends between two
//! looks is missed. Who was seen once is held by a pidfd, so that its end and code are not.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use agentvm_wire::id::ProcessId;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::Pid;
use rustix::time::Timespec;

use super::held::Held;
use super::proc::{FORKED_ONLY, Proc, Seen};
use super::sighting::{Key, Sighting, Subject, What};
use super::sink::Sink;
use crate::init::now_ns;

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(20);

/// Who looks at a tree.
pub(super) struct Poller<'a> {
    sink: &'a Sink,
    proc: &'a Proc,
    tree: ProcessId,
    root: Key,
    processes: HashMap<Pid, Held>,
    executed: bool,
}

impl<'a> Poller<'a> {
    /// For a root that still waits to go.
    pub(super) fn new(
        sink: &'a Sink,
        proc: &'a Proc,
        tree: ProcessId,
        root: (Pid, Seen),
    ) -> rustix::io::Result<Self> {
        let (pid, seen) = root;
        let processes = HashMap::from([(pid, Held::hold(pid, seen)?)]);
        Ok(Self { sink, proc, tree, root: seen.who.key, processes, executed: false })
    }

    /// Looks until nobody is left: whether anything was executed.
    pub(super) fn run(mut self) -> bool {
        let mut next = Instant::now();
        while !self.processes.is_empty() {
            if next <= Instant::now() {
                self.look();
                next = Instant::now() + PAUSE;
            }
            for pid in self.await_ends(next) {
                self.ended(pid);
            }
        }
        self.executed
    }

    /// Who has ended, at the latest at that moment.
    fn await_ends(&self, next: Instant) -> Vec<Pid> {
        let left = next.saturating_duration_since(Instant::now());
        let limit = Timespec { tv_sec: 0, tv_nsec: left.subsec_nanos().into() };
        let pids: Vec<Pid> = self.processes.keys().copied().collect();
        let mut watched: Vec<_> =
            self.processes.values().map(|held| PollFd::new(&held.pidfd, PollFlags::IN)).collect();
        if poll(&mut watched, Some(&limit)).is_err() {
            return Vec::new();
        }
        let ended = pids.into_iter().zip(&watched).filter(|(_, state)| !state.revents().is_empty());
        ended.map(|(pid, _)| pid).collect()
    }

    fn look(&mut self) {
        // Children of those that are found now are looked for next.
        let mut pending: Vec<Pid> = self.processes.keys().copied().collect();
        while let Some(pid) = pending.pop() {
            let Some(held) = self.processes.get_mut(&pid) else { continue };
            let who = held.who;
            if held.has_executed(self.proc, pid) {
                self.executed = true;
                self.saw(who, What::Executed(self.proc.executed(pid)));
            }
            for child in self.proc.children(pid) {
                if self.meet(child, who.key) {
                    pending.push(child);
                }
            }
        }
    }

    fn meet(&mut self, pid: Pid, parent: Key) -> bool {
        if self.processes.contains_key(&pid) {
            return false;
        }
        let Some(seen) = self.proc.see(pid).filter(|seen| !seen.is_zombie) else { return false };
        let Ok(mut held) = Held::hold(pid, seen) else { return false };
        // What its parent executes it has not executed itself.
        let parents = self.processes.values().find(|held| held.who.key == parent);
        held.image = parents.and_then(|parent| parent.image).map(|[_, rest @ ..]| {
            let [stack, arguments, environment] = rest;
            [FORKED_ONLY, stack, arguments, environment]
        });
        self.processes.insert(pid, held);
        self.saw(seen.who, What::Forked { parent });
        true
    }

    fn ended(&mut self, pid: Pid) {
        let Some(held) = self.processes.remove(&pid) else { return };
        let saw = self.sighting(held.who, held.end(self.proc, pid, None));
        self.sink.tell_end(saw, held.who.key == self.root);
    }

    fn saw(&self, who: Subject, what: What) {
        self.sink.tell(self.sighting(who, what));
    }

    fn sighting(&self, who: Subject, what: What) -> Sighting {
        Sighting::Saw { tree: Some(self.tree), who, at_ns: now_ns(), what }
    }
}
