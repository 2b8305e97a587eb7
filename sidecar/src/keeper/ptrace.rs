//! A tree seen by `ptrace(2)`: every process of it stops for a moment when it begins, forks and executes, and its end is
//! collected here before its parent may.
//!
//! One thread watches one tree, with blocking waits. Both a new process and its parent stop: it goes on once the parent has
//! told of it. One that was killed before its first stop is a zombie until it is taken, and is looked up as one.
//!
//! What is woken while something else is ready on the same processor goes to another one, which costs most of what being
//! traced does. So whoever waits for its child (`vfork(2)`) anyway is left waiting here.

mod adoption;

use std::collections::{HashMap, HashSet};

use agentvm_wire::id::ProcessId;
use rustix::process::Pid;

use super::proc::{Proc, Seen, pid_of};
use super::sighting::{Key, Sighting, Subject, What};
use super::sink::Sink;
use crate::init::now_ns;
use crate::sys::ptrace::{self, Change, ChangeKind};

/// A tree that is watched by this thread.
pub(super) struct Tracer<'a> {
    sink: &'a Sink,
    proc: &'a Proc,
    tree: ProcessId,
    /// None if it had ended before anybody looked.
    root: Option<Key>,
    threads: HashMap<Pid, Thread>,
    processes: HashMap<Pid, Process>,
    /// Who was met before its parent's stop told of it: it may have ended by then.
    met: HashSet<Pid>,
    /// Whose parent is not known: it has gone, or its stop will tell.
    strangers: HashMap<Pid, Seen>,
    /// Of those, who has ended.
    early: HashMap<Pid, (Subject, ChangeKind)>,
    /// Who has begun, and of whom its parent has still to tell.
    begun: HashSet<Pid>,
    /// By what they made: threads that have nothing to do before it has executed something or ended.
    waiting: HashMap<Pid, Pid>,
    executed: bool,
}

struct Thread {
    /// What it belongs to.
    process: Pid,
    /// When it went on: what it tells of next is younger. Nanoseconds of the monotonic clock; 0: nobody knows.
    went_on_ns: u64,
}

struct Process {
    who: Subject,
    threads: HashSet<Pid>,
    stopped: bool,
}

impl<'a> Tracer<'a> {
    /// For a root that this thread has seized.
    pub(super) fn new(sink: &'a Sink, proc: &'a Proc, tree: ProcessId, root: (Pid, Seen)) -> Self {
        let (pid, seen) = root;
        let mut tracer = Self::of(sink, proc, tree);
        tracer.root = Some(seen.who.key);
        tracer.add(pid, seen.who);
        tracer
    }

    fn of(sink: &'a Sink, proc: &'a Proc, tree: ProcessId) -> Self {
        Self {
            sink,
            proc,
            tree,
            root: None,
            threads: HashMap::new(),
            processes: HashMap::new(),
            met: HashSet::new(),
            strangers: HashMap::new(),
            early: HashMap::new(),
            begun: HashSet::new(),
            waiting: HashMap::new(),
            executed: false,
        }
    }
}

impl Tracer<'_> {
    /// Returns when nobody is left: whether anything was executed.
    pub(super) fn run(mut self) -> bool {
        while let Ok(changed) = ptrace::next_change(!self.begun.is_empty()) {
            let Some((pid, stops)) = changed else {
                self.meet_begun();
                continue;
            };
            let is_new = !self.threads.contains_key(&pid) && !self.strangers.contains_key(&pid);
            // It can be looked up until its end is taken.
            if is_new && !stops {
                self.meet(pid);
            }
            match ptrace::take_change(pid) {
                Ok(Some(Change { kind: ChangeKind::Begun, .. })) if is_new => _ = self.begun.insert(pid),
                Ok(Some(change)) => self.follow(change),
                _ => {}
            }
        }
        for (who, end) in std::mem::take(&mut self.early).into_values() {
            self.saw(who, What::Adopted { parent: None });
            self.tell_end(who, end);
        }
        self.executed
    }

    fn follow(&mut self, Change { pid, kind }: Change) {
        if matches!(kind, ChangeKind::Forked { .. } | ChangeKind::Executed | ChangeKind::Signal(_)) {
            self.adopt(pid);
        }
        // It fails if the thread was killed meanwhile; its end is told then.
        let _ = match kind {
            ChangeKind::Forked { awaits } => {
                let child = ptrace::message(pid);
                if let Ok(Some(child)) = child {
                    self.forked(pid, child);
                    if self.begun.remove(&child) {
                        let _ = self.let_go(child, 0);
                    }
                    if awaits && self.threads.contains_key(&child) {
                        self.waiting.insert(child, pid);
                        return;
                    }
                }
                self.let_go(pid, 0)
            }
            ChangeKind::Executed => {
                self.executed(pid);
                let gone = self.let_go(pid, 0);
                self.let_parent_go(pid);
                gone
            }
            ChangeKind::Begun => {
                self.goes_on(pid);
                self.let_go(pid, 0)
            }
            ChangeKind::Stopped { signal } => {
                self.stopped(pid, signal);
                ptrace::stay_stopped(pid)
            }
            ChangeKind::Signal(signal) => self.let_go(pid, signal),
            ChangeKind::Exited { .. } | ChangeKind::Killed { .. } => {
                self.ended(pid, kind);
                Ok(())
            }
        };
    }

    fn let_go(&mut self, pid: Pid, signal: i32) -> rustix::io::Result<()> {
        if let Some(thread) = self.threads.get_mut(&pid) {
            thread.went_on_ns = now_ns();
        }
        ptrace::go_on(pid, signal)
    }

    /// Meets all that have begun: who stopped to tell of them would have done so by now, or was killed.
    fn meet_begun(&mut self) {
        for pid in std::mem::take(&mut self.begun) {
            self.meet(pid);
            let _ = self.let_go(pid, 0);
        }
    }

    /// Meets somebody of whom nobody has told, by a beginning or an end of its own.
    fn meet(&mut self, pid: Pid) {
        let Some(seen) = self.proc.see(pid) else {
            if self.proc.ran_short() {
                self.sink.lose(self.tree);
            }
            return;
        };
        let parent = pid_of(seen.parent).and_then(|parent| self.processes.get(&parent));
        if let Some(parent) = parent.map(|parent| parent.who.key) {
            self.met.insert(pid);
            self.begin(pid, seen.who, seen.is_thread, parent);
        } else if seen.is_thread {
            self.add(pid, seen.who);
        } else {
            self.strangers.insert(pid, seen);
        }
    }

    /// A stranger does something, and nobody said that it was his child: the parent was killed before it could.
    fn adopt(&mut self, pid: Pid) {
        if let Some(seen) = self.strangers.remove(&pid) {
            self.add(pid, seen.who);
            self.saw(seen.who, What::Adopted { parent: None });
        }
    }

    /// A thread made another one, or a process.
    fn forked(&mut self, thread: Pid, child: Pid) {
        let Some(Thread { process, went_on_ns }) = self.threads.get(&thread) else { return };
        let Some(parent) = self.processes.get(process).map(|parent| parent.who.key) else { return };
        if self.met.remove(&child) {
            return;
        }
        if let Some((who, end)) = self.early.remove(&child) {
            self.saw(who, What::Forked { parent });
            self.tell_end(who, end);
        } else if !self.threads.contains_key(&child) {
            let stranger = self.strangers.remove(&child).map(|seen| (seen.who, seen.is_thread));
            if let Some((who, is_thread)) = stranger.or_else(|| self.proc.see_new(child, *went_on_ns)) {
                self.begin(child, who, is_thread, parent);
            }
        }
    }

    fn begin(&mut self, pid: Pid, who: Subject, is_thread: bool, parent: Key) {
        self.add(pid, who);
        if !is_thread {
            self.saw(who, What::Forked { parent });
        }
    }

    fn add(&mut self, thread: Pid, who: Subject) {
        let Some(process) = pid_of(who.key.host_pid) else { return };
        self.threads.insert(thread, Thread { process, went_on_ns: 0 });
        let fresh = || Process { who, threads: HashSet::new(), stopped: false };
        self.processes.entry(process).or_insert_with(fresh).threads.insert(thread);
    }

    /// Lets the thread go on that waits for a child of its to execute something or to end, if one does.
    fn let_parent_go(&mut self, child: Pid) {
        if let Some(parent) = self.waiting.remove(&child) {
            let _ = self.let_go(parent, 0);
        }
    }

    /// Of its threads only the one that executed is left, under the process's own pid.
    fn executed(&mut self, pid: Pid) {
        let Some(process) = self.processes.get_mut(&pid) else { return };
        for thread in process.threads.drain().filter(|thread| *thread != pid) {
            self.threads.remove(&thread);
        }
        process.threads.insert(pid);
        let who = process.who;
        self.threads.insert(pid, Thread { process: pid, went_on_ns: 0 });
        self.executed = true;
        let executed = self.proc.executed(pid);
        self.saw(who, What::Executed(executed));
    }

    fn stopped(&mut self, pid: Pid, signal: i32) {
        // Each thread of a process stops.
        if let Some(process) = self.processes.get_mut(&pid)
            && !std::mem::replace(&mut process.stopped, true)
        {
            let who = process.who;
            self.saw(who, What::Stopped { signal });
        }
    }

    fn goes_on(&mut self, pid: Pid) {
        if let Some(process) = self.processes.get_mut(&pid)
            && std::mem::take(&mut process.stopped)
        {
            let who = process.who;
            self.saw(who, What::Continued);
        }
    }

    /// A thread has ended; if it is a main thread, so has its process.
    fn ended(&mut self, pid: Pid, end: ChangeKind) {
        self.let_parent_go(pid);
        self.waiting.retain(|_, parent| *parent != pid);
        if let Some(seen) = self.strangers.remove(&pid) {
            self.early.insert(pid, (seen.who, end));
        }
        let Some(Thread { process, .. }) = self.threads.remove(&pid) else { return };
        if process != pid {
            if let Some(process) = self.processes.get_mut(&process) {
                process.threads.remove(&pid);
            }
            return;
        }
        if let Some(Process { who, threads, .. }) = self.processes.remove(&pid) {
            for thread in threads {
                self.threads.remove(&thread);
            }
            self.tell_end(who, end);
        }
    }

    fn tell_end(&self, who: Subject, end: ChangeKind) {
        let (code, signal) = match end {
            ChangeKind::Exited { code } => (Some(code), None),
            ChangeKind::Killed { signal } => (None, Some(signal)),
            _ => (None, None),
        };
        let saw = self.sighting(who, What::Exited { code, signal });
        self.sink.tell_end(saw, Some(who.key) == self.root);
    }

    fn saw(&self, who: Subject, what: What) {
        self.sink.tell(self.sighting(who, what));
    }

    fn sighting(&self, who: Subject, what: What) -> Sighting {
        Sighting::Saw { tree: Some(self.tree), who, at_ns: now_ns(), what }
    }
}
