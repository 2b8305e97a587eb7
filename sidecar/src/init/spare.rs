//! The spare: a child that is forked and prepared before anybody asks for it, so that the next start need not wait
//! for that, nor for init: the sidecar hands it what it is to become, and tells init what it did.
//!
//! ```text
//!   a start has executed its command ──► forked ──► waits ──► is handed a start ──► named by init
//!                                                     └─────► has ended: nobody came for a while, or it was killed
//! ```
//!
//! It is like a child that was forked for a start: in a UTS namespace and a session of its own, with init's
//! credentials, not to be looked into; and it holds nothing but its sockets. A guest of the same uid may stop it, then
//! init continues it, as everything that runs our code; or kill it, then init forks another one for the start that it
//! was handed.
//!
//! Init hears from the spare and from the sidecar in any order: the process may have ended before its name is known.

use std::time::Instant;

use agentvm_wire::id::ProcessId;
use rustix::process::{Pid, Signal, kill_process};

use super::messages::{Exit, Reply, Start};
use super::server::{Gone, Server};
use super::start::{self, Child, DEADLINE, StartFault, Wanted, fork_child};
use super::table::Mark;
use crate::packet::{self, Packet};

/// A child without a name.
#[derive(Debug)]
pub(super) struct Spare {
    number: u32,
    child: Child,
    /// That of its tree, which it may have by now.
    mark: Option<Mark>,
    /// It has been a process, and its name is on the way.
    ended: Option<Exit>,
}

impl Server<'_> {
    /// Starts a process: in the spare that was handed it, or in a fresh child.
    pub(super) fn start(
        &mut self,
        id: ProcessId,
        request: Packet<Start>,
        spare: Option<u32>,
    ) -> Result<(), Gone> {
        let deadline = Instant::now() + DEADLINE;
        let Some(spare) = self.take_spare(spare) else { return self.start_fresh(id, &request, deadline) };
        let pid = spare.child.pid;
        self.watch(id, spare.child, deadline, request.message.cpu_limit_us, Some(request));
        spare.ended.map_or(Ok(()), |exit| self.ended(pid, exit))
    }

    fn take_spare(&mut self, number: Option<u32>) -> Option<Spare> {
        self.spare.take_if(|spare| Some(spare.number) == number)
    }

    /// Starts a process in a fresh child.
    pub(super) fn start_fresh(
        &mut self,
        id: ProcessId,
        request: &Packet<Start>,
        deadline: Instant,
    ) -> Result<(), Gone> {
        match fork_child(Wanted::This(request), self.terms, self.proof) {
            Ok(child) => {
                self.watch(id, child, deadline, request.message.cpu_limit_us, None);
                Ok(())
            }
            Err(StartFault { step, errno }) => self.reply(&Reply::StartFailed { process: id, step, errno }),
        }
    }

    /// Makes one for the next start, once everything else of a turn is done. Not while a helper reads `/proc`: that
    /// one would not know it, and list it.
    pub(super) fn make_spare_if_due(&mut self) -> Result<(), Gone> {
        let due = std::mem::take(&mut self.spare_is_due) && !self.terminating;
        // Without one, the next start forks and says what is wrong.
        if due
            && self.spare.is_none()
            && self.helpers.is_empty()
            && let Ok((sidecars, spares)) = packet::pair()
            && let Ok(child) = fork_child(Wanted::From(&spares), self.terms, self.proof)
        {
            self.last_spare = self.last_spare.wrapping_add(1);
            let (number, mark) = (self.last_spare, self.members.mark(child.pid));
            self.spare = Some(Spare { number, child, mark, ended: None });
            self.reply_with(&Reply::Spare { spare: number }, Some(sidecars))?;
        }
        Ok(())
    }

    pub(super) fn is_spare(&self, pid: Pid) -> bool {
        self.spare.as_ref().is_some_and(|spare| spare.child.pid == pid)
    }

    /// The mark of processes whose tree has no name yet.
    pub(super) fn spare_mark(&self) -> Option<Mark> {
        self.spare.as_ref().and_then(|spare| spare.mark)
    }

    /// Whether it is the spare, and runs our code.
    pub(super) fn is_waiting_spare(&self, pid: Pid) -> bool {
        self.spare
            .as_ref()
            .is_some_and(|spare| spare.child.pid == pid && !start::is_decided(&spare.child.socket))
    }

    /// Takes the end of a child, if it was the spare.
    pub(super) fn spare_ended(&mut self, pid: Pid, exit: Exit) -> Result<(), Gone> {
        let Some(mut spare) = self.spare.take_if(|spare| spare.child.pid == pid) else { return Ok(()) };
        if start::has_spoken(&spare.child.socket) {
            spare.ended = Some(exit);
            self.spare = Some(spare);
            return Ok(());
        }
        self.reply(&Reply::NoSpare { spare: spare.number })
    }

    /// Refuses a start that a spare may have been handed.
    pub(super) fn refuse(&mut self, spare: Option<u32>) {
        if let Some(Spare { child, ended: None, .. }) = self.take_spare(spare) {
            // Our unreaped child, so the pid is its own.
            let _ = kill_process(child.pid, Signal::KILL);
        }
    }
}
