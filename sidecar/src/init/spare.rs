//! The spare: a child that is forked and prepared before anybody asks for it, so that the next start need not wait
//! for that.
//!
//! ```text
//!   a start has executed its command ──► forked ──► waits ──► is handed the next start
//!                                                     └─────► given up: it ended, or nobody came for a while
//! ```
//!
//! It is like a child that was forked for a start: in a UTS namespace and a session of its own, with init's
//! credentials, not to be looked into; and it holds nothing but its socket. A guest of the same uid may stop it, then init
//! continues it, as everything that runs our code; or kill it, then the next start forks, and so does one that it had
//! already been handed. It waits only for a moment: an idle VM has none, and no process looks much older than its start.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use agentvm_wire::id::ProcessId;
use rustix::process::{Pid, Signal, kill_process};

use super::messages::{Reply, Start};
use super::server::{Gone, Server};
use super::start::{Child, DEADLINE, StartFault, fork_child};
use crate::packet::{self, Packet};
use crate::sys::wait::ChangeKind;

/// How long one waits.
const PATIENCE: Duration = Duration::from_secs(1);

/// A child without a start.
#[derive(Debug)]
pub(super) struct Spare {
    child: Child,
    until: Instant,
    given_up: bool,
}

impl Spare {
    /// When it is to be given up, if it is not yet.
    pub(super) fn deadline(&self) -> Option<Instant> {
        (!self.given_up).then_some(self.until)
    }

    fn take_over(&self, request: &Packet<Start>) -> rustix::io::Result<()> {
        let descriptors: Vec<BorrowedFd<'_>> = request.descriptors.iter().map(OwnedFd::as_fd).collect();
        packet::send(&self.child.socket, &packet::encode(&request.message), &descriptors)
    }

    fn give_up(&mut self) {
        self.given_up = true;
        // Our unreaped child, so the pid is its own.
        let _ = kill_process(self.child.pid, Signal::KILL);
    }
}

impl Server<'_> {
    /// Starts a process: in the spare, or in a fresh child where there is none to be had.
    pub(super) fn start(&mut self, id: ProcessId, request: Packet<Start>) -> Result<(), Gone> {
        let deadline = Instant::now() + DEADLINE;
        if let Some(mut spare) = self.spare.take_if(|spare| !spare.given_up) {
            if spare.take_over(&request).is_ok() {
                self.watch(id, spare.child, deadline, request.message.cpu_limit_us, Some(request));
                return Ok(());
            }
            spare.give_up();
            self.spare = Some(spare);
        }
        self.start_fresh(id, &request, deadline)
    }

    /// Starts a process in a fresh child.
    pub(super) fn start_fresh(
        &mut self,
        id: ProcessId,
        request: &Packet<Start>,
        deadline: Instant,
    ) -> Result<(), Gone> {
        match fork_child(Some(request), self.terms, self.proof) {
            Ok(child) => {
                self.watch(id, child, deadline, request.message.cpu_limit_us, None);
                Ok(())
            }
            Err(StartFault { step, errno }) => self.reply(&Reply::StartFailed { process: id, step, errno }),
        }
    }

    /// Makes one for the next start, once everything else of a turn is done. Not while a helper reads `/proc`: that
    /// one would not know it, and list it.
    pub(super) fn make_spare_if_due(&mut self) {
        let due = std::mem::take(&mut self.spare_is_due) && !self.terminating;
        if due && self.spare.is_none() && self.helpers.is_empty() {
            // Without one, the next start forks and says what is wrong.
            let child = fork_child(None, self.terms, self.proof).ok();
            let until = Instant::now() + PATIENCE;
            self.spare = child.map(|child| Spare { child, until, given_up: false });
        }
    }

    pub(super) fn is_spare(&self, pid: Pid) -> bool {
        self.spare.as_ref().is_some_and(|spare| spare.child.pid == pid)
    }

    /// Takes the end of a child, if it was the spare.
    pub(super) fn spare_changed(&mut self, pid: Pid, kind: ChangeKind) {
        if matches!(kind, ChangeKind::Exited { .. } | ChangeKind::Killed { .. }) && self.is_spare(pid) {
            self.spare = None;
        }
    }

    /// Kills a spare that nobody came for.
    pub(super) fn give_up_old_spare(&mut self) {
        if let Some(spare) = &mut self.spare
            && spare.deadline().is_some_and(|until| until <= Instant::now())
        {
            spare.give_up();
        }
    }
}
