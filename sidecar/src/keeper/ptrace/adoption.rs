//! Taking a tree under watch that runs already: every thread of it is seized, until nobody new is found.
//!
//! Who is seized makes no process that is not seen. So whoever is new in a later pass was made before, and a pass that finds
//! nobody comes soon, whatever the tree does meanwhile.

use std::collections::{HashSet, VecDeque};

use agentvm_wire::id::ProcessId;
use rustix::io::Errno;
use rustix::process::Pid;
use rustix::thread::gettid;

use super::Tracer;
use crate::init::now_ns;
use crate::keeper::proc::{Proc, Seen, pid_of};
use crate::keeper::sighting::{Backend, Loss, Running, Sighting, What};
use crate::keeper::sink::Sink;
use crate::sys::ptrace::seize;

/// A process's UTS namespace, in its folder.
const UTS: &str = "ns/uts";

/// Passes at most.
const MAX_PASSES: usize = 64;

/// Who belongs to a tree, as far as it is known.
struct Search<'a> {
    running: &'a Running,
    below: Pid,
    /// Nobody else is taken before the root, unless that has gone.
    awaits_root: bool,
    /// UTS namespaces of its members, where it has its own.
    namespaces: HashSet<Vec<u8>>,
    /// That of everybody else.
    common: Option<Vec<u8>>,
    /// Members that could not be taken.
    refused: HashSet<Pid>,
}

impl<'a> Tracer<'a> {
    /// Takes a tree, as far as it lets itself be seized by this thread; an error says why its root does not. `kill`: it dies
    /// with this thread.
    pub(in crate::keeper) fn of_running(
        sink: &'a Sink,
        proc: &'a Proc,
        tree: ProcessId,
        running: &Running,
        kill: bool,
    ) -> Result<Self, Loss> {
        let mut tracer = Self::of(sink, proc, tree);
        let Some(below) = pid_of(running.below) else { return Ok(tracer) };
        let mut search = Search {
            running,
            below,
            awaits_root: running.root.is_some(),
            namespaces: HashSet::new(),
            common: proc.link(below, UTS),
            refused: HashSet::new(),
        };
        for _ in 0..MAX_PASSES {
            let found = tracer.pass(&mut search, kill)?;
            // One that is not there in the first pass has gone.
            if !found && !std::mem::take(&mut search.awaits_root) {
                return Ok(tracer);
            }
        }
        sink.lose(tree);
        Ok(tracer)
    }

    /// Looks at everybody once, parents first: whether anybody was new.
    fn pass(&mut self, search: &mut Search<'_>, kill: bool) -> Result<bool, Loss> {
        let mut found = false;
        let mut pending = VecDeque::from(self.proc.children(search.below));
        while let Some(pid) = pending.pop_front() {
            if let Some(seen) = self.proc.see(pid).filter(|seen| !seen.is_zombie)
                && search.is_member(self, pid, &seen)
            {
                if search.awaits_root {
                    self.root = Some(seen.who.key);
                }
                match self.take(pid, seen, kill) {
                    Ok(new) => {
                        found |= new;
                        search.joined(self, pid, seen);
                    }
                    Err(loss) if search.awaits_root => return Err(loss),
                    Err(loss) => {
                        self.sink.tell(Sighting::Lost { tree: Some(self.tree), loss, count: 1 });
                        search.refused.insert(pid);
                    }
                }
            }
            pending.extend(self.proc.children(pid));
        }
        Ok(found)
    }

    /// Seizes every thread of a process: whether any was new.
    fn take(&mut self, pid: Pid, seen: Seen, kill: bool) -> Result<bool, Loss> {
        let mut found = false;
        loop {
            let mut new = false;
            for thread in self.proc.threads(pid) {
                if self.threads.contains_key(&thread) {
                    continue;
                }
                match seize(thread, kill) {
                    Ok(()) => {
                        if thread == pid {
                            self.begins(pid, seen);
                        } else {
                            self.add(thread, seen.who);
                        }
                        new = true;
                    }
                    Err(Errno::SRCH) => {}
                    Err(_) => match self.proc.tracer(thread) {
                        // Made by a thread that was seized: its own stop will tell of it.
                        Some(tracer) if tracer == gettid() => {}
                        Some(_) => return Err(Loss::Traced),
                        // It may have ended meanwhile.
                        None if self.proc.see(thread).is_none_or(|seen| seen.is_zombie) => {}
                        None => return Err(Loss::NotPermitted),
                    },
                }
            }
            if !new {
                return Ok(found);
            }
            found = true;
        }
    }

    fn begins(&mut self, pid: Pid, seen: Seen) {
        self.add(pid, seen.who);
        if Some(seen.who.key) != self.root {
            let parent = pid_of(seen.parent).and_then(|parent| self.processes.get(&parent));
            let parent = parent.map(|parent| parent.who.key);
            self.saw(seen.who, What::Adopted { parent });
        }
    }
}

impl Search<'_> {
    fn is_member(&self, tracer: &Tracer<'_>, pid: Pid, seen: &Seen) -> bool {
        if self.awaits_root {
            return seen.who.pid == self.running.root;
        }
        let by_parent = pid_of(seen.parent)
            .is_some_and(|parent| tracer.processes.contains_key(&parent) || self.refused.contains(&parent));
        let by_name = seen.who.pid.is_some_and(|pid| self.running.tops.contains(&pid));
        let by_namespace = || tracer.proc.link(pid, UTS).is_some_and(|uts| self.namespaces.contains(&uts));
        !self.refused.contains(&pid) && (by_parent || by_name || by_namespace())
    }

    /// A member was seized, if it is there.
    fn joined(&mut self, tracer: &Tracer<'_>, pid: Pid, seen: Seen) {
        if !tracer.processes.contains_key(&pid) {
            return;
        }
        if std::mem::take(&mut self.awaits_root) {
            let (tree, root) = (tracer.tree, seen.who);
            tracer.sink.tell(Sighting::Watched { tree, root, at_ns: now_ns(), backend: Backend::Ptrace });
        }
        let own = tracer.proc.link(pid, UTS).filter(|uts| Some(uts) != self.common.as_ref());
        self.namespaces.extend(own);
    }
}
