//! Whether what was tried to be executed was: looked up at the next call, or after a while.

use std::time::{Duration, Instant};

use rustix::process::Pid;

use super::{Listener, Process};
use crate::keeper::proc::Image;
use crate::keeper::sighting::{Executed, Subject, What};

/// Until it is first looked whether something was executed; doubled each time, for so many times.
const FIRST_LOOK: Duration = Duration::from_millis(2);
const LOOKS: u32 = 9;

impl Listener<'_> {
    /// Notes that a process tries to execute something, and to look whether it has.
    pub(super) fn tries(&mut self, pid: Pid, path: Vec<u8>) {
        let Some(process) = self.processes.get_mut(&pid) else { return };
        process.tried = Some((path, 0));
        self.look_later(pid, 0);
    }

    fn look_later(&mut self, pid: Pid, looks: u32) {
        self.looks.insert((Instant::now() + FIRST_LOOK * (1 << looks), pid.as_raw_nonzero().get()));
    }

    /// Looks at everybody who tried to execute something a while ago.
    pub(super) fn look(&mut self) {
        let now = Instant::now();
        while self.looks.first().is_some_and(|(due, _)| *due <= now) {
            let Some(pid) = self.looks.pop_first().and_then(|(_, pid)| Pid::from_raw(pid)) else { continue };
            self.settle(pid);
            if let Some((_, looks)) = self.processes.get_mut(&pid).and_then(|process| process.tried.as_mut())
            {
                *looks += 1;
                let looks = *looks;
                if looks < LOOKS {
                    self.look_later(pid, looks);
                }
            }
        }
    }

    /// Tells what a living process executes, if it has executed what it tried to.
    pub(super) fn settle(&mut self, pid: Pid) {
        let Some(process) = self.processes.get_mut(&pid).filter(|process| process.tried.is_some()) else {
            return;
        };
        if process.held.has_executed(self.proc, pid) {
            process.tried = None;
            let who = process.held.who;
            self.tell_executed(who, self.proc.executed(pid));
        }
    }

    /// The same of one that has ended without another call. To be killed comes so soon rather to a program that runs than
    /// to one that could not be executed.
    pub(super) fn settle_at_end(&mut self, pid: Pid, process: &mut Process, killed: bool) {
        let Some((path, _)) = process.tried.take() else { return };
        let forked_only = |image: Option<Image>| image.map(|[forked_only, ..]| forked_only != 0);
        let has = match (forked_only(process.held.image), forked_only(self.proc.image(pid))) {
            (Some(true), Some(still)) => !still,
            _ => killed,
        };
        if has {
            self.tell_executed(process.held.who, Executed { path, truncated: true, ..Executed::default() });
        }
    }

    fn tell_executed(&mut self, who: Subject, executed: Executed) {
        self.executed = true;
        self.tell_process(who, What::Executed(executed));
    }
}
