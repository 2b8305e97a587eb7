//! The zygote process: prepares what VMs share, then clones an init for each plan it is sent. It never waits for
//! anything but the next plan; it keeps no list of VMs, and they live on without it.

use std::os::fd::{AsFd as _, OwnedFd};

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::net::RecvFlags;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Signal, getegid, geteuid, pidfd_send_signal, setsid, umask};
use rustix::thread::UnshareFlags;

use super::messages::{Birth, Greeting};
use crate::init::{self, Arrival};
use crate::isolation::base::Base;
use crate::isolation::cgroup::Entry;
use crate::isolation::fault::reach;
use crate::isolation::niceness::Niceness;
use crate::isolation::plan::Plan;
use crate::isolation::seccomp::Programs;
use crate::isolation::{At as _, Fault, Step, identity, kernel, uid_ranges};
use crate::packet::{self, Packet};
use crate::sys::clone::{Forked, fork_into_namespaces, unshare};
use crate::sys::{SingleThreaded, descriptors, exec, memory, signals};

/// The namespaces of a VM that init is cloned into; it makes that of control groups once it is in its own.
const NAMESPACES: UnshareFlags = UnshareFlags::NEWUSER
    .union(UnshareFlags::NEWPID)
    .union(UnshareFlags::NEWNS)
    .union(UnshareFlags::NEWNET)
    .union(UnshareFlags::NEWUTS)
    .union(UnshareFlags::NEWIPC);

/// What the zygote ignores: the terminal's signals, closed sockets, and its children, which then vanish unwaited.
pub(crate) const IGNORED: [i32; 6] =
    [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTSTP, libc::SIGPIPE, libc::SIGCHLD];

/// What all VMs share.
#[derive(Debug)]
struct Nursery {
    base: Base,
    programs: Programs,
    /// The host's `/proc`, for writing id maps.
    proc: OwnedFd,
    niceness: Niceness,
    proof: SingleThreaded,
}

/// Is the zygote until the sidecar closes its end of `socket`.
pub(crate) fn run(socket: &OwnedFd) -> ! {
    let status = match Nursery::prepare(socket) {
        Ok(nursery) => {
            let _ = packet::send(socket, &packet::encode(&Greeting::Ready), &[]);
            nursery.serve(socket);
            0
        }
        Err(fault) => {
            // Nobody to tell if this fails too: the sidecar sees the end of the socket.
            let _ = packet::send(socket, &packet::encode(&Greeting::Failed(fault)), &[]);
            1
        }
    };
    exec::exit_now(status)
}

impl Nursery {
    fn prepare(socket: &OwnedFd) -> Result<Self, Fault> {
        let proof = SingleThreaded::check().ok_or(Fault::about(Step::Zygote, Errno::BUSY, "threads"))?;
        leave_the_sidecars_session(socket)?;
        reach(Step::Kernel)?;
        kernel::check()?;
        if uid_ranges::are_ours() {
            reach(Step::Groups)?;
            rustix::thread::set_thread_groups(&[]).at(Step::Groups)?;
        } else {
            let (uid, gid) = (geteuid(), getegid());
            reach(Step::UserNamespace)?;
            unshare(proof, UnshareFlags::NEWUSER).at(Step::UserNamespace)?;
            identity::map_zygote_to_root(uid, gid)?;
        }
        reach(Step::MountNamespace)?;
        unshare(proof, UnshareFlags::NEWNS).at(Step::MountNamespace)?;
        reach(Step::Base)?;
        let base = Base::build()?;
        let programs = Programs::compile();
        memory::give_back();
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let proc = openat(CWD, "/proc", flags, Mode::empty()).at_path(Step::Base, "/proc")?;
        Ok(Self { base, programs, proc, niceness: Niceness::lower(), proof })
    }

    fn serve(&self, socket: &OwnedFd) {
        let mut buffer = vec![0; packet::MAX_BYTES];
        // The end of the socket and any error on it mean the same: no sidecar, no more VMs.
        while let Ok(Some(Packet { message: plan, descriptors })) =
            packet::receive::<Plan>(socket, &mut buffer, RecvFlags::empty())
        {
            let mut descriptors = descriptors.into_iter();
            let Some(vm) = descriptors.next() else { return };
            let entry = Entry::from_descriptors(plan.entry, descriptors);
            if let Err(fault) = self.bear(&plan, &vm, entry) {
                // A caller who has gone does not want to know.
                let _ = packet::send(&vm, &packet::encode(&Birth::Failed(fault)), &[]);
            }
        }
    }

    /// Clones an init, maps its ids, and lets it go. It waits on a pipe for that, whose end tells it to give up.
    fn bear(&self, plan: &Plan, vm: &OwnedFd, entry: Entry) -> Result<(), Fault> {
        plan.reach(Step::Namespaces)?;
        let (wait, go) = pipe_with(PipeFlags::CLOEXEC).at(Step::Namespaces)?;
        let (forked, pidfd) =
            fork_into_namespaces(self.proof, NAMESPACES, entry.born.as_ref()).at(Step::Namespaces)?;
        let (Forked::Parent(pid), Some(pidfd)) = (forked, pidfd) else {
            drop(go);
            let arrival = Arrival { socket: vm, go: Some(wait), entry, niceness: self.niceness };
            init::run(plan, &self.base, &self.programs, arrival, self.proof)
        };
        drop(wait);
        plan.reach(Step::IdMaps)?;
        let process = identity::process_folder(self.proc.as_fd(), pid)?;
        // Children of a zygote vanish unwaited; the folder is this one's if it is still alive after it was opened.
        pidfd_send_signal(&pidfd, Signal::CONT).at(Step::IdMaps)?;
        plan.id_maps.write(process.as_fd(), plan.guest)?;
        let birth = packet::encode(&Birth::Cloned { pid: pid.as_raw_nonzero().get() });
        packet::send(vm, &birth, &[pidfd.as_fd()]).at(Step::Zygote)?;
        rustix::io::write(&go, &[1]).at(Step::Zygote)?;
        Ok(())
    }
}

/// Keeps nothing of the sidecar but the socket: no session, no descriptors, no signals of its terminal.
pub(crate) fn leave_the_sidecars_session(socket: &OwnedFd) -> Result<(), Fault> {
    use std::os::fd::AsRawFd as _;
    // EPERM: it leads one already.
    let _ = setsid();
    signals::reset_dispositions();
    signals::unblock_all().at(Step::Zygote)?;
    IGNORED.into_iter().for_each(signals::ignore);
    // Init keeps it so: a file it cannot write is an error it can tell.
    signals::ignore(libc::SIGXFSZ);
    umask(Mode::empty());
    rustix::thread::set_name(c"agentvm-init").at(Step::Zygote)?;
    descriptors::close_all_but([socket.as_raw_fd()]).at(Step::Zygote)
}
