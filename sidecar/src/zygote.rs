//! The zygote: a small process, started first thing, from which every VM's init is cloned. A sidecar with threads and
//! a large memory is a bad parent; this one has neither.
//!
//! Dropping the last [`Zygote`] closes its socket, and the process exits. Living VMs do not depend on it.

mod messages;
mod plan;
mod run;
mod start;

use std::collections::BTreeMap;
use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

use agentvm_wire::id::VmId;
use agentvm_wire::vm::{IsolationReport, VmConfig};
use rustix::io::Errno;
use rustix::net::RecvFlags;
use rustix::process::{Pid, geteuid};
use serde::de::DeserializeOwned;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::init::client::{self, Connection, Lease};
use crate::init::{Boot, Commands, Events};
use crate::isolation::cgroup::{Cgroups, Entry};
use crate::isolation::plan::Plan;
use crate::isolation::uid_ranges::{UidRange, UidRanges};
use crate::isolation::{At as _, Fault, Step, report};
use crate::packet::{self, Packet};
use crate::sys::reactor::watch;
use messages::Birth;

pub(crate) use run::{IGNORED, run};
pub use start::StartError;

/// The sidecar's handle of its zygote; cheap to clone.
#[derive(Debug, Clone)]
pub struct Zygote {
    shared: Arc<Shared>,
}

/// What all handles have in common.
#[derive(Debug)]
struct Shared {
    /// The running process; another one once that has died.
    process: Mutex<Arc<start::Process>>,
    /// The pool of uids, as root.
    ranges: Option<UidRanges>,
    /// What limits VMs as a whole.
    cgroups: Arc<Cgroups>,
}

/// A VM whose init said ready.
#[derive(Debug)]
pub struct Booted {
    /// Requests to its init.
    pub commands: Commands,
    /// What happens in it.
    pub events: Events,
    /// What was really built.
    pub report: IsolationReport,
    /// The environment of its processes: the VM's own, overlaid by the config's.
    pub environment: BTreeMap<String, String>,
    /// The working directory of a process that names none.
    pub cwd: String,
    /// uid and gid, as the sidecar sees them, that the guest's pipes must belong to, so that `/dev/stdout` opens
    /// inside; absent when they are the sidecar's own.
    pub guest_ids: Option<(u32, u32)>,
}

/// Why a VM could not be created. Nothing of it is left.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot create the VM: {}", Description(.0))]
pub struct BootError(pub(crate) Fault);

impl BootError {
    /// The step that failed.
    pub fn step(&self) -> Step {
        self.0.step
    }

    /// Why, as a Linux errno.
    pub fn errno(&self) -> i32 {
        self.0.errno
    }

    /// The path or field it was about.
    pub fn path(&self) -> Option<&str> {
        self.0.path.as_deref()
    }

    /// What would help, where that is known.
    pub fn hint(&self) -> Option<&'static str> {
        self.0.hint()
    }
}

/// A fault in words.
struct Description<'a>(&'a Fault);

impl fmt::Display for Description<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Fault { step, errno, path } = self.0;
        write!(f, "step {step}")?;
        if let Some(path) = path {
            write!(f, ", {path}")?;
        }
        write!(f, ": {}", std::io::Error::from_raw_os_error(*errno))?;
        match self.0.hint() {
            Some(hint) => write!(f, "; {hint}"),
            None => Ok(()),
        }
    }
}

impl Zygote {
    /// Starts the zygote and waits until it takes requests. Blocks; call it before any thread or runtime exists.
    pub fn start() -> Result<Self, StartError> {
        let ranges = if geteuid().is_root() { Some(UidRanges::open(std::process::id() * 64)) } else { None };
        let ranges = ranges.transpose().map_err(StartError)?;
        // Before the zygote, which is to be in the group this process settles in.
        let cgroups = Cgroups::open();
        let process = Mutex::new(Arc::new(start::Process::start()?));
        Ok(Self { shared: Arc::new(Shared { process, ranges, cgroups }) })
    }

    /// Creates a VM and waits until its init is ready. Needs a tokio runtime, which the result stays bound to.
    ///
    /// Cancel safety: a dropped future leaves no VM behind.
    pub async fn create_vm(&self, id: VmId, config: &VmConfig) -> Result<Booted, BootError> {
        let range = self.take_range().map_err(BootError)?;
        let plan = plan::plan(id, config, range.as_ref()).map_err(BootError)?;
        self.boot(id, plan, range, config).await.map_err(BootError)
    }

    /// Creates a VM in which one step fails.
    #[cfg(test)]
    pub(crate) async fn create_failing_vm(
        &self,
        config: &VmConfig,
        step: Step,
        errno: Errno,
    ) -> Result<Booted, BootError> {
        let range = self.take_range().map_err(BootError)?;
        let id = VmId::random();
        let mut plan = plan::plan(id, config, range.as_ref()).map_err(BootError)?;
        plan.failing = Some((step, errno.raw_os_error()));
        self.boot(id, plan, range, config).await.map_err(BootError)
    }

    /// The pid of the zygote process.
    #[cfg(test)]
    pub(crate) fn pid(&self) -> u32 {
        self.process().pid()
    }

    fn take_range(&self) -> Result<Option<UidRange>, Fault> {
        self.shared.ranges.as_ref().map(UidRanges::take).transpose()
    }

    fn process(&self) -> Arc<start::Process> {
        Arc::clone(&self.shared.process.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Executes the zygote again if `dead` is still the one in use. Blocks for some milliseconds; VMs that live are
    /// not concerned.
    fn replace(&self, dead: &Arc<start::Process>) -> Result<(), Fault> {
        let mut process = self.shared.process.lock().unwrap_or_else(PoisonError::into_inner);
        if Arc::ptr_eq(&process, dead) {
            *process = Arc::new(start::Process::start().map_err(|StartError(fault)| fault)?);
        }
        Ok(())
    }

    async fn boot(
        &self,
        id: VmId,
        mut plan: Plan,
        range: Option<UidRange>,
        config: &VmConfig,
    ) -> Result<Booted, Fault> {
        let group = self.shared.cgroups.make(&format!("vm-{id}"), &plan::group_limits(&config.limits))?;
        let entry = group.entry()?;
        (plan.entry, plan.own_share) = (entry.kinds(), group.share().is_some());
        let Born { socket, pid, pidfd } = self.bear(&plan, &entry).await?;
        drop(entry);
        let facts = match receive(&socket).await? {
            Packet { message: Boot::Failed(fault), .. } => return Err(fault),
            Packet { message: Boot::Ready(facts), .. } => facts,
        };
        let report = report::compose(&plan, config, &facts, pid, &group)?;
        let connection = Connection::new(socket, pidfd, Lease::new(range, group)).at(Step::Zygote)?;
        let (commands, events) = client::split(connection);
        Ok(Booted {
            commands,
            events,
            report,
            environment: plan::environment(&plan, config),
            guest_ids: plan.id_maps.guest_id_outside(plan.guest).map(|id| (id, id)),
            cwd: plan.cwd,
        })
    }

    /// Has an init cloned; a zygote that has died is replaced once.
    async fn bear(&self, plan: &Plan, entry: &Entry) -> Result<Born, Fault> {
        let process = self.process();
        match Born::from(&process, plan, entry).await {
            Err(fault) if (fault.step, fault.errno) == (Step::Zygote, libc::EPIPE) => {
                self.replace(&process)?;
                Born::from(&self.process(), plan, entry).await
            }
            result => result,
        }
    }
}

/// An init that exists and is being set up.
struct Born {
    socket: AsyncFd<OwnedFd>,
    pid: Pid,
    pidfd: OwnedFd,
}

impl Born {
    async fn from(process: &start::Process, plan: &Plan, entry: &Entry) -> Result<Self, Fault> {
        let (ours, inits) = packet::pair().at(Step::Zygote)?;
        process.send(plan, &inits, entry).await.at(Step::Zygote)?;
        drop(inits);
        let socket = watch(ours, Interest::READABLE | Interest::WRITABLE).at(Step::Zygote)?;
        let broken = |what| Fault::about(Step::Zygote, Errno::BADMSG, what);
        match receive(&socket).await? {
            Packet { message: Birth::Failed(fault), .. } => Err(fault),
            Packet { message: Birth::Cloned { pid }, descriptors } => {
                let [pidfd] = <[OwnedFd; 1]>::try_from(descriptors).map_err(|_| broken("pidfd"))?;
                Ok(Self { socket, pid: Pid::from_raw(pid).ok_or(broken("pid"))?, pidfd })
            }
        }
    }
}

/// The next message over a VM's socket. Its end means that the zygote or init is gone.
async fn receive<M: DeserializeOwned>(socket: &AsyncFd<OwnedFd>) -> Result<Packet<M>, Fault> {
    let mut buffer = vec![0; packet::MAX_BYTES];
    loop {
        let mut ready = socket.readable().await.at(Step::Zygote)?;
        match packet::receive(socket.get_ref(), &mut buffer, RecvFlags::DONTWAIT) {
            Ok(Some(packet)) => return Ok(packet),
            Ok(None) => return Err(Fault::about(Step::Zygote, Errno::PIPE, "init ended early")),
            Err(Errno::AGAIN) => ready.clear_ready(),
            Err(errno) => return Err(Fault::new(Step::Zygote, errno)),
        }
    }
}
