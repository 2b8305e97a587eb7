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
//! The sidecar hands over one start at a time, and only where nothing else is unanswered, whether there is a spare or
//! not: what nobody has taken is taken back. Init hears from the spare and from the sidecar in any order: the process may
//! have ended before its name is known.

use std::time::Instant;

use agentvm_wire::id::ProcessId;
use rustix::net::RecvFlags;
use rustix::process::{Pid, Signal, kill_process};

use super::messages::{Exit, Reply, Start};
use super::server::{Gone, Server};
use super::start::{self, Child, DEADLINE, StartFault, Wanted, fork_child};
use super::table::Mark;
use crate::packet::{self, Packet};

/// A child without a name.
#[derive(Debug)]
pub(super) struct Spare {
    child: Child,
    /// That of its tree, which it may have by now.
    mark: Option<Mark>,
    /// It has been a process, and its name is on the way.
    ended: Option<Exit>,
}

impl Server<'_> {
    /// Starts a process: in the spare, if it was handed over, or in a fresh child.
    pub(super) fn start(&mut self, id: ProcessId, request: Packet<Start>, handed: bool) -> Result<(), Gone> {
        let deadline = Instant::now() + DEADLINE;
        let Some(spare) = self.spare.take_if(|_| handed) else {
            if handed {
                self.take_back();
            }
            return self.start_fresh(id, request, deadline);
        };
        let pid = spare.child.pid;
        self.handing = Some(pid);
        self.watch(id, spare.child, deadline, request.message.cpu_limit_us, Some(request));
        spare.ended.map_or(Ok(()), |exit| self.ended(pid, exit))
    }

    /// Empties the socket of what was handed over and not taken.
    pub(super) fn take_back(&mut self) {
        while packet::receive::<Start>(self.handed, &mut self.buffer, RecvFlags::DONTWAIT)
            .is_ok_and(|taken| taken.is_some())
        {}
    }

    /// Starts a process in a fresh child.
    pub(super) fn start_fresh(
        &mut self,
        id: ProcessId,
        request: Packet<Start>,
        deadline: Instant,
    ) -> Result<(), Gone> {
        match fork_child(Wanted::This(&request), self.terms, self.proof) {
            Ok(child) => {
                let cpu_limit_us = request.message.cpu_limit_us;
                self.watch(
                    id,
                    child,
                    deadline,
                    cpu_limit_us,
                    Some(request).filter(|request| request.message.watched),
                );
                Ok(())
            }
            Err(StartFault { step, errno }) => self.reply(&Reply::StartFailed { process: id, step, errno }),
        }
    }

    /// Makes one for the next start, once everything else of a turn is done. Not while a start is handed over, which two
    /// would then become; not while a helper reads `/proc`: that one would not know it, and list it.
    pub(super) fn make_spare_if_due(&mut self) {
        let due = std::mem::take(&mut self.spare_is_due) && !self.terminating;
        if due && self.spare.is_none() && self.handing.is_none() && self.helpers.is_empty() {
            // Without one, the next start forks and says what is wrong.
            let child = fork_child(Wanted::From(self.handed), self.terms, self.proof).ok();
            let spare = |child: Child| Spare { mark: self.members.mark(child.pid), child, ended: None };
            self.spare = child.map(spare);
        }
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
    pub(super) fn spare_ended(&mut self, pid: Pid, exit: Exit) {
        if let Some(spare) = &mut self.spare
            && spare.child.pid == pid
        {
            spare.ended = Some(exit);
            self.spare.take_if(|spare| !start::has_spoken(&spare.child.socket));
        }
    }

    /// Refuses a start that may have been handed over.
    pub(super) fn refuse(&mut self, handed: bool) {
        if let Some(Spare { child, ended: None, .. }) = self.spare.take_if(|_| handed) {
            // Our unreaped child, so the pid is its own.
            let _ = kill_process(child.pid, Signal::KILL);
        }
        if handed {
            self.take_back();
        }
    }
}
