//! The supervisor: starts the init of one VM without namespaces and stays behind to end it, because there the kernel does
//! not end what an init leaves.
//!
//! ```text
//!  sidecar ── lifeline ──► supervisor ── forks ──► init ── starts ──► guests
//!     ▲                        │ a subreaper         ▲  a subreaper     each a subreaper, in a session of its own
//!     └──────── socket ────────┼─────────────────────┘
//!                              └► at the end of the lifeline or of init: SIGKILL to all below it, then the private folder
//! ```
//!
//! Landlock holds init and guests, not the supervisor: from Linux 6.12 on they cannot signal it. Its end is the VM's.

mod start;

use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::RecvFlags;
use rustix::process::{Pid, getpid, set_child_subreaper};
use rustix::thread::UnshareFlags;

use crate::init::{self, Arrival, Boot, Members};
use crate::isolation::cgroup::Entry;
use crate::isolation::niceness::Niceness;
use crate::isolation::plan::Plan;
use crate::isolation::private_folder::PrivateFolder;
use crate::isolation::{At as _, Fault, Step};
use crate::packet::{self, Packet};
use crate::sys::clone::{Forked, fork_into_namespaces};
use crate::sys::wait::{ChangeKind, next_change};
use crate::sys::{SingleThreaded, exec, signals};
use crate::zygote::leave_the_sidecars_session;

pub(crate) use start::Supervisor;

/// Is the supervisor of the VM whose plan comes over `lifeline`, until that ends.
pub(crate) fn run(lifeline: &OwnedFd) -> ! {
    let mut buffer = vec![0; packet::MAX_BYTES];
    let left = leave_the_sidecars_session(lifeline);
    let Ok(Some(Packet { message: plan, descriptors })) =
        packet::receive::<Plan>(lifeline, &mut buffer, RecvFlags::empty())
    else {
        exec::exit_now(1);
    };
    let mut descriptors = descriptors.into_iter();
    let (Some(vm), Some(folder)) = (descriptors.next(), plan.folder.clone()) else { exec::exit_now(1) };
    let entry = Entry::from_descriptors(plan.entry, descriptors);
    let supervised = left.and_then(|()| supervise(&plan, &folder, lifeline, &vm, entry));
    if let Err(fault) = supervised {
        // A sidecar that has gone does not want to know.
        let _ = packet::send(&vm, &packet::encode(&Boot::Failed(fault)), &[]);
    }
    folder.remove();
    exec::exit_now(0)
}

/// Starts init, and returns when nothing below this process is left.
fn supervise(
    plan: &Plan,
    folder: &PrivateFolder,
    lifeline: &OwnedFd,
    vm: &OwnedFd,
    entry: Entry,
) -> Result<(), Fault> {
    let proof = SingleThreaded::check().ok_or(Fault::about(Step::Supervisor, Errno::BUSY, "threads"))?;
    plan.reach(Step::Supervisor)?;
    set_child_subreaper(Some(getpid())).at_path(Step::Supervisor, "subreaper")?;
    signals::restore(libc::SIGCHLD);
    let members = Members::descendants().at_path(Step::Supervisor, "/proc")?;
    let niceness = Niceness::lower();
    let children = signals::child_changes().at(Step::Supervisor)?;
    let none_new = UnshareFlags::empty();
    let init = match fork_into_namespaces(proof, none_new, entry.born.as_ref()).at(Step::Supervisor)?.0 {
        Forked::Parent(pid) => pid,
        Forked::Child => {
            let arrival = Arrival { socket: vm, go: None, entry, niceness };
            init::run_on_host(plan, folder, arrival, proof)
        }
    };
    drop(entry);
    let awaited = await_end(lifeline, &children, init).at(Step::Supervisor);
    members.end_all();
    awaited
}

/// Waits for the end of the lifeline or of init; collects whom others have left.
fn await_end(lifeline: &OwnedFd, children: &OwnedFd, init: Pid) -> rustix::io::Result<()> {
    loop {
        let mut record = [0; size_of::<libc::signalfd_siginfo>()];
        while rustix::io::read(children, &mut record).is_ok() {}
        while let Ok(Some(change)) = next_change() {
            let ended = matches!(change.kind, ChangeKind::Exited { .. } | ChangeKind::Killed { .. });
            if change.pid == init && ended {
                return Ok(());
            }
        }
        let mut watched = [PollFd::new(lifeline, PollFlags::IN), PollFd::new(children, PollFlags::IN)];
        rustix::io::retry_on_intr(|| poll(&mut watched, None))?;
        if !watched[0].revents().is_empty() {
            return Ok(());
        }
    }
}
