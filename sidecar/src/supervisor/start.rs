//! Starting a supervisor, and ending it.

use std::os::fd::{AsFd as _, OwnedFd};
use std::process::Stdio;

use rustix::io::Errno;
use rustix::net::{Shutdown, shutdown};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::process::{Child, Command};

use crate::isolation::cgroup::Entry;
use crate::isolation::plan::Plan;
use crate::isolation::{At as _, Fault, Step};
use crate::launch::SUPERVISOR_NAME;
use crate::packet;

/// A running supervisor, as the sidecar holds it.
#[derive(Debug)]
pub(crate) struct Supervisor {
    lifeline: OwnedFd,
    /// Collected by the runtime once it has ended.
    _child: Child,
}

impl Supervisor {
    /// Starts one for a plan, with init's end of the VM's socket and the VM's groups; also its pid and a pidfd. Blocks for
    /// the time of a fork and an exec.
    pub(crate) fn start(plan: &Plan, inits: &OwnedFd, entry: &Entry) -> Result<(Self, Pid, OwnedFd), Fault> {
        let (lifeline, theirs) = packet::pair().at(Step::Supervisor)?;
        let child = Command::new("/proc/self/exe")
            .arg0(SUPERVISOR_NAME)
            .env_clear()
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .at_path(Step::Supervisor, "/proc/self/exe")?;
        let pid = child.id().and_then(|pid| Pid::from_raw(pid.cast_signed()));
        let pid = pid.ok_or(Fault::new(Step::Supervisor, Errno::SRCH))?;
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).at(Step::Supervisor)?;
        let descriptors: Vec<_> = std::iter::once(inits.as_fd()).chain(entry.descriptors()).collect();
        packet::send(&lifeline, &packet::encode(plan), &descriptors).at(Step::Supervisor)?;
        Ok((Self { lifeline, _child: child }, pid, pidfd))
    }

    /// Lets it end everything, and itself.
    pub(crate) fn end(&self, pidfd: &OwnedFd) {
        let _ = shutdown(&self.lifeline, Shutdown::Both);
        // A guest of its uid may have stopped it.
        let _ = pidfd_send_signal(pidfd, Signal::CONT);
    }
}
