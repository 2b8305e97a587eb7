//! Starting the zygote process, and ending it.

use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::RecvFlags;
use rustix::time::Timespec;

use super::Description;
use super::messages::Greeting;
use crate::isolation::cgroup::Entry;
#[cfg(test)]
use crate::isolation::fault;
use crate::isolation::plan::Plan;
use crate::isolation::{At as _, Fault, Step};
use crate::launch::ZYGOTE_NAME;
use crate::packet::{self, Packet};
use crate::sys::reactor::room;

/// How long the zygote may take to prepare itself: a few milliseconds on a quiet host.
const GREETING_LIMIT: Timespec = Timespec { tv_sec: 30, tv_nsec: 0 };

/// How long it may take to exit once its socket is closed.
const EXIT_LIMIT: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// What is executed: this very program.
const PROGRAM: &str = "/proc/self/exe";

/// Why VMs cannot be created on this host as this user.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot prepare VMs: {}", Description(.0))]
pub struct StartError(pub(crate) Fault);

/// The running zygote.
#[derive(Debug)]
pub(super) struct Process {
    socket: OwnedFd,
    child: Mutex<Child>,
}

impl Process {
    pub(super) fn start() -> Result<Self, StartError> {
        Self::try_start().map_err(StartError)
    }

    /// Starts one in which a step fails.
    #[cfg(test)]
    pub(super) fn start_failing(step: Step, errno: Errno) -> Result<Self, StartError> {
        let failing = format!("{step}:{}", errno.raw_os_error());
        Self::launch(Command::new(PROGRAM).env_clear().env(fault::TEST_FAIL_ENV, failing)).map_err(StartError)
    }

    fn try_start() -> Result<Self, Fault> {
        Self::launch(Command::new(PROGRAM).env_clear())
    }

    fn launch(command: &mut Command) -> Result<Self, Fault> {
        let (socket, theirs) = packet::pair().at(Step::Zygote)?;
        let child = command
            .arg0(ZYGOTE_NAME)
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .at_path(Step::Zygote, PROGRAM)?;
        // From here on dropping it ends the child.
        let process = Self { socket, child: Mutex::new(child) };
        process.await_greeting()?;
        Ok(process)
    }

    fn await_greeting(&self) -> Result<(), Fault> {
        let mut watched = [PollFd::new(&self.socket, PollFlags::IN)];
        if rustix::io::retry_on_intr(|| poll(&mut watched, Some(&GREETING_LIMIT))).at(Step::Zygote)? == 0 {
            return Err(Fault::about(Step::Zygote, Errno::TIMEDOUT, "greeting"));
        }
        let mut buffer = vec![0; packet::MAX_BYTES];
        match packet::receive(&self.socket, &mut buffer, RecvFlags::DONTWAIT).at(Step::Zygote)? {
            Some(Packet { message: Greeting::Ready, .. }) => Ok(()),
            Some(Packet { message: Greeting::Failed(fault), .. }) => Err(fault),
            None => Err(Fault::about(
                Step::Zygote,
                Errno::PIPE,
                "this program does not call run_zygote_if_requested() or before_main!() at its start",
            )),
        }
    }

    #[cfg(test)]
    pub(super) fn pid(&self) -> u32 {
        self.child.lock().unwrap_or_else(std::sync::PoisonError::into_inner).id()
    }

    /// Sends a plan with init's end of the new VM's socket and the VM's groups; waits where the zygote has not taken the earlier ones.
    pub(super) async fn send(&self, plan: &Plan, inits: &OwnedFd, entry: &Entry) -> std::io::Result<()> {
        let bytes = packet::encode(plan);
        let descriptors: Vec<_> = std::iter::once(inits.as_fd()).chain(entry.descriptors()).collect();
        loop {
            match packet::send(&self.socket, &bytes, &descriptors) {
                Err(Errno::AGAIN) => room(&self.socket).await?,
                result => return Ok(result?),
            }
        }
    }
}

impl Drop for Process {
    /// Closes the socket, upon which the zygote exits, and collects it.
    fn drop(&mut self) {
        let child = self.child.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner);
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
        let pidfd = rustix::process::Pid::from_raw(child.id().cast_signed())
            .and_then(|pid| rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).ok());
        let exited = pidfd.is_some_and(|pidfd| {
            poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&EXIT_LIMIT)).is_ok_and(|ready| ready == 1)
        });
        if !exited {
            let _ = child.kill();
        }
        let _ = child.wait();
    }
}
