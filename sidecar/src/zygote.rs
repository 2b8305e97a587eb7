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
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use agentvm_wire::id::VmId;
use agentvm_wire::vm::{Isolation, IsolationReport, VmConfig};
use rustix::io::Errno;
use rustix::net::RecvFlags;
use rustix::process::Pid;
use serde::de::DeserializeOwned;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::init::client::{self, Connection, Ending, Lease};
use crate::init::{Boot, Commands, Events};
use crate::isolation::cgroup::{Cgroups, Controller, Entry};
use crate::isolation::identity::IdMaps;
use crate::isolation::plan::Plan;
use crate::isolation::uid_ranges::{self, UidRange, UidRanges};
use crate::isolation::{At as _, Fault, Step, report};
use crate::packet::{self, Packet};
use crate::state::{self, State};
use crate::supervisor::Supervisor;
use crate::sys::reactor::watch;
use messages::Birth;

pub(crate) use run::{IGNORED, leave_the_sidecars_session, run};
pub use start::StartError;

/// The sidecar's handle of its zygote; cheap to clone.
#[derive(Debug, Clone)]
pub struct Zygote {
    shared: Arc<Shared>,
}

/// What all handles have in common.
#[derive(Debug)]
struct Shared {
    /// The running process; another one once that has died. Or why there can be no sandbox here.
    process: Mutex<Result<Arc<start::Process>, StartError>>,
    /// The pool of uids, for root of the host.
    ranges: Option<UidRanges>,
    /// The state folder, from the first VM on that needs one.
    state: Mutex<Option<State>>,
    /// What limits VMs as a whole.
    cgroups: Arc<Cgroups>,
}

/// A VM whose init said ready.
#[derive(Debug)]
pub struct Booted {
    /// Its init, or the supervisor above that, as the sidecar sees it.
    pub pid: Pid,
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

    /// What failed and why, without what would help.
    #[cfg(feature = "cli")]
    pub(crate) fn cause(&self) -> String {
        Cause(&self.0).to_string()
    }

    /// What would help, where that is known.
    pub fn hint(&self) -> Option<&'static str> {
        self.0.hint()
    }
}

/// A fault in words.
struct Cause<'a>(&'a Fault);

impl fmt::Display for Cause<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Fault { step, errno, path } = self.0;
        write!(f, "step {step}")?;
        if let Some(path) = path {
            write!(f, ", {path}")?;
        }
        write!(f, ": {}", std::io::Error::from_raw_os_error(*errno))
    }
}

/// With what would help.
struct Description<'a>(&'a Fault);

impl fmt::Display for Description<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Cause(self.0))?;
        match self.0.hint() {
            Some(hint) => write!(f, "; {hint}"),
            None => Ok(()),
        }
    }
}

impl Zygote {
    /// Starts the zygote and waits until it takes requests; sweeps what sidecars that were killed have left. Where
    /// [`Self::sandbox`] fails, VMs of the weaker levels can still be had. Blocks; call it before any thread or runtime
    /// exists.
    pub fn start() -> Self {
        state::sweep();
        let ranges = uid_ranges::are_ours().then(|| UidRanges::open(std::process::id() * 64)).transpose();
        // Before the zygote, which is to be in the group this process settles in.
        let cgroups = Cgroups::open();
        let (ranges, process) = match ranges {
            Ok(ranges) => (ranges, start::Process::start().map(Arc::new)),
            Err(fault) => (None, Err(StartError(fault))),
        };
        let process = Mutex::new(process);
        Self { shared: Arc::new(Shared { process, ranges, state: Mutex::default(), cgroups }) }
    }

    /// One whose process fails at a step.
    #[cfg(test)]
    pub(crate) fn start_failing(step: Step, errno: Errno) -> Self {
        let zygote = Self::start();
        let failing = start::Process::start_failing(step, errno).map(Arc::new);
        *zygote.shared.process.lock().unwrap_or_else(PoisonError::into_inner) = failing;
        zygote
    }

    /// Whether there can be sandboxes on this host, as this user.
    pub fn sandbox(&self) -> Result<(), StartError> {
        self.process().map(drop).map_err(StartError)
    }

    /// Creates a VM and waits until its init is ready. Needs a tokio runtime, which the result stays bound to.
    ///
    /// Cancel safety: a dropped future leaves no VM behind.
    pub async fn create_vm(&self, id: VmId, config: &VmConfig) -> Result<Booted, BootError> {
        let (plan, range) = self.plan(id, config).map_err(BootError)?;
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
        let id = VmId::random();
        let (mut plan, range) = self.plan(id, config).map_err(BootError)?;
        plan.failing = Some((step, errno.raw_os_error()));
        self.boot(id, plan, range, config).await.map_err(BootError)
    }

    /// The pid of the zygote process.
    #[cfg(test)]
    pub(crate) fn pid(&self) -> u32 {
        self.process().expect("there is one").pid()
    }

    /// Where private folders are made, once one was.
    #[cfg(test)]
    pub(crate) fn state_folder(&self) -> Option<std::path::PathBuf> {
        let state = self.shared.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.as_ref().map(|state| state.path().to_owned())
    }

    /// What one VM shall be, and the uids it gets for that.
    fn plan(&self, id: VmId, config: &VmConfig) -> Result<(Plan, Option<UidRange>), Fault> {
        let take_range = || self.shared.ranges.as_ref().map(UidRanges::take).transpose();
        match config.isolation {
            Isolation::Sandbox => {
                let range = take_range()?;
                Ok((plan::sandbox(id, config, range.as_ref())?, range))
            }
            Isolation::Confined => {
                let range = take_range()?;
                let ids = plan::guest_on_host(range.as_ref())?;
                Ok((self.plan_on_host(id, config, ids)?, range))
            }
            Isolation::None => Ok((self.plan_on_host(id, config, IdMaps::Host(None))?, None)),
            _ => Err(plan::refuse("isolation")),
        }
    }

    fn plan_on_host(&self, id: VmId, config: &VmConfig, ids: IdMaps) -> Result<Plan, Fault> {
        let counts_pids = self.shared.cgroups.missing(Controller::Pids).is_none();
        plan::check_on_host(config, ids, counts_pids)?;
        let mut state = self.shared.state.lock().unwrap_or_else(PoisonError::into_inner);
        let folder = match &*state {
            Some(state) => state.folder_of(id),
            None => state.insert(State::make()?).folder_of(id),
        };
        plan::on_host(config, ids, folder)
    }

    fn process(&self) -> Result<Arc<start::Process>, Fault> {
        let process = self.shared.process.lock().unwrap_or_else(PoisonError::into_inner);
        process.as_ref().map(Arc::clone).map_err(|StartError(fault)| fault.clone())
    }

    /// Executes the zygote again if `dead` is still the one in use. Blocks for some milliseconds; VMs that live are
    /// not concerned.
    fn replace(&self, dead: &Arc<start::Process>) -> Result<(), Fault> {
        let mut process = self.shared.process.lock().unwrap_or_else(PoisonError::into_inner);
        if process.as_ref().is_ok_and(|process| Arc::ptr_eq(process, dead)) {
            *process = Ok(Arc::new(start::Process::start().map_err(|StartError(fault)| fault)?));
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
        let Born { socket, pid, pidfd, ending } = match plan.isolation {
            Isolation::Sandbox => self.bear(&plan, &entry).await?,
            _ => Born::supervised(&plan, &entry)?,
        };
        drop(entry);
        let (facts, descriptors) = match receive(&socket).await? {
            Packet { message: Boot::Failed(fault), .. } => return Err(fault),
            Packet { message: Boot::Ready(facts), descriptors } => (facts, descriptors),
        };
        let [spares] = <[OwnedFd; 1]>::try_from(descriptors)
            .ok()
            .filter(|[spares]| packet::is_packet_socket(spares.as_fd()))
            .ok_or(Fault::about(Step::Zygote, Errno::BADMSG, "socket of the spare"))?;
        let report = report::compose(&plan, config, &facts, pid, &group)?;
        let connection =
            Connection::new(socket, spares, pidfd, ending, Lease::new(range, group)).at(Step::Zygote)?;
        let (commands, events) = client::split(connection);
        Ok(Booted {
            pid,
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
        let process = self.process()?;
        match Born::from(&process, plan, entry).await {
            Err(fault) if (fault.step, fault.errno) == (Step::Zygote, libc::EPIPE) => {
                self.replace(&process)?;
                Born::from(&*self.process()?, plan, entry).await
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
    ending: Ending,
}

impl Born {
    /// By a supervisor, whose end is then the VM's.
    fn supervised(plan: &Plan, entry: &Entry) -> Result<Self, Fault> {
        let (ours, inits) = packet::pair().at(Step::Supervisor)?;
        let (supervisor, pid, pidfd) = Supervisor::start(plan, &inits, entry)?;
        let socket = watch(ours, Interest::READABLE).at(Step::Supervisor)?;
        Ok(Self { socket, pid, pidfd, ending: Ending::Supervisor(supervisor) })
    }

    async fn from(process: &start::Process, plan: &Plan, entry: &Entry) -> Result<Self, Fault> {
        let (ours, inits) = packet::pair().at(Step::Zygote)?;
        process.send(plan, &inits, entry).await.at(Step::Zygote)?;
        drop(inits);
        // Nobody waits for room here. But that the sidecar is woken when init takes a start keeps its processor awake,
        // and makes an exec some 3 % faster than without (`cargo xtask bench -- exec_argv`).
        let socket = watch(ours, Interest::READABLE | Interest::WRITABLE).at(Step::Zygote)?;
        let broken = |what| Fault::about(Step::Zygote, Errno::BADMSG, what);
        match receive(&socket).await? {
            Packet { message: Birth::Failed(fault), .. } => Err(fault),
            Packet { message: Birth::Cloned { pid }, descriptors } => {
                let [pidfd] = <[OwnedFd; 1]>::try_from(descriptors).map_err(|_| broken("pidfd"))?;
                Ok(Self {
                    socket,
                    pid: Pid::from_raw(pid).ok_or(broken("pid"))?,
                    pidfd,
                    ending: Ending::Init,
                })
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
