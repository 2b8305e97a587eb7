//! The isolation report: read back from inside by init, completed outside by the sidecar.

mod host;
mod limits;

use std::fs::read_to_string;

use agentvm_wire::vm::{
    GuestIdentity, IdMapping, Isolation, IsolationReport, LandlockReport, Namespaces, Partial, SeccompReport,
    VmConfig,
};
use rustix::fs::{AtFlags, CWD, statat, statvfs};
use rustix::process::{Pid, Resource, getegid, getrlimit};
use serde::{Deserialize, Serialize};

use super::capabilities;
use super::cgroup::{Controller, Group};
use super::identity::IdMaps;
use super::plan::Plan;
use super::root_filesystem::Built;
use super::{At as _, Fault, Step, rlimits};

/// What init sees of its own VM.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Facts {
    /// Inodes: user, pid, mnt, net, uts, ipc, cgroup.
    namespaces: [u64; 7],
    hostname: String,
    no_new_privs: bool,
    seccomp_mode: u32,
    seccomp_filters: Option<u32>,
    landlock_abi: Option<u32>,
    /// Of the VM's own root: bytes, inodes.
    disk: Option<(u64, u64)>,
    pid_max: Option<u64>,
    core: Option<u64>,
    file_size: Option<u64>,
    partial: Vec<(String, String)>,
}

/// Order of [`Facts::namespaces`].
const NAMESPACES: [&str; 7] = ["user", "pid", "mnt", "net", "uts", "ipc", "cgroup"];

impl Facts {
    /// Looks at a sandbox from inside, after everything is locked.
    pub(crate) fn of_sandbox(plan: &Plan, built: &Built) -> Result<Self, Fault> {
        let disk = statvfs("/").at_path(Step::Report, "/")?;
        let pid_max =
            read_to_string("/proc/sys/kernel/pid_max").ok().and_then(|text| text.trim().parse().ok());
        let disk = Some((disk.f_blocks * disk.f_frsize, disk.f_files));
        Ok(Self { disk, pid_max, ..Self::read_back(partial(plan, built))? })
    }

    /// The same of a VM without namespaces, which Landlock holds in or nothing does.
    pub(crate) fn of_host(plan: &Plan, landlock_abi: Option<u32>) -> Result<Self, Fault> {
        Ok(Self { landlock_abi, ..Self::read_back(host::partial(plan, landlock_abi))? })
    }

    fn read_back(partial: Vec<(String, String)>) -> Result<Self, Fault> {
        let mut namespaces = [0; 7];
        for (inode, name) in namespaces.iter_mut().zip(NAMESPACES) {
            let path = format!("/proc/self/ns/{name}");
            *inode = statat(CWD, &path, AtFlags::empty()).at_path(Step::Report, &path)?.st_ino;
        }
        let status = read_to_string("/proc/self/status").at_path(Step::Report, "/proc/self/status")?;
        let field = |name: &str| {
            status
                .lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(':')?.trim().parse::<u32>().ok())
        };
        let uname = rustix::system::uname();
        Ok(Self {
            namespaces,
            hostname: uname.nodename().to_string_lossy().into_owned(),
            no_new_privs: field("NoNewPrivs") == Some(1),
            seccomp_mode: field("Seccomp").unwrap_or(0),
            seccomp_filters: field("Seccomp_filters"),
            landlock_abi: None,
            disk: None,
            pid_max: None,
            core: getrlimit(Resource::Core).maximum,
            file_size: getrlimit(Resource::Fsize).maximum,
            partial,
        })
    }
}

fn partial(plan: &Plan, built: &Built) -> Vec<(String, String)> {
    let mut partial = Vec::new();
    let mut add = |what: &str, why: &str| partial.push((what.to_owned(), why.to_owned()));
    if !built.pid_max_holds {
        add("pid_max", "a pid namespace has a pid limit of its own only since Linux 6.14");
    }
    partial.extend(of_any(plan));
    partial
}

/// What may hold only in part at any level.
fn of_any(plan: &Plan) -> Vec<(String, String)> {
    let mut partial = Vec::new();
    let mut add = |what: &str, why: &str| partial.push((what.to_owned(), why.to_owned()));
    let keeps_groups = matches!(plan.id_maps, IdMaps::Single | IdMaps::Host(None));
    if keeps_groups && rustix::process::getgroups().is_ok_and(|groups| !groups.is_empty()) {
        add("groups", "the sidecar's supplementary groups cannot be dropped without privileges");
    }
    if rlimits::cores_are_piped() && getrlimit(Resource::Core).maximum == Some(0) {
        add(
            "core",
            "a core limit of 0 does not stop the host's core handler, and the sidecar's own allows no other",
        );
    }
    partial
}

/// Completes what init saw with what only the sidecar sees: the id maps in its own terms, and what was asked for.
pub(crate) fn compose(
    plan: &Plan,
    config: &VmConfig,
    facts: &Facts,
    pid: Pid,
    group: &Group,
) -> Result<IsolationReport, Fault> {
    let mut partial = facts.partial.clone();
    if plan.guest.root && matches!(plan.id_maps, IdMaps::Range(_)) && group.limit(Controller::Pids).is_none()
    {
        let why = "root of the VM may use several uids, and each has the limit for itself";
        partial.push(("pids".to_owned(), why.to_owned()));
    }
    let [user, pid_ns, mnt, net, uts, ipc, cgroup] = facts.namespaces.map(|inode| inode.to_string());
    let namespaces = Namespaces { user, pid: pid_ns, mnt, net, uts, ipc, cgroup };
    Ok(IsolationReport {
        isolation: plan.isolation,
        hostname: facts.hostname.clone(),
        namespaces: (plan.isolation == Isolation::Sandbox).then_some(namespaces),
        uid_map: read_map(pid, "uid_map")?,
        gid_map: read_map(pid, "gid_map")?,
        guest: GuestIdentity {
            uid: plan.guest_id(),
            gid: guest_gid(plan),
            home: plan.home(),
            capabilities: capabilities::names(capabilities::of_guest(plan)),
        },
        no_new_privs: facts.no_new_privs,
        seccomp: SeccompReport { mode: facts.seccomp_mode, filters: facts.seccomp_filters },
        landlock: facts.landlock_abi.map(|abi| LandlockReport { abi }),
        limits: limits::report(plan, config, facts, group),
        partial: partial.into_iter().map(|(what, why)| Partial { what, why }).collect(),
    })
}

/// As its uid, unless it is the sidecar itself.
fn guest_gid(plan: &Plan) -> u32 {
    if plan.id_maps == IdMaps::Host(None) { getegid().as_raw() } else { plan.guest_id() }
}

fn read_map(pid: Pid, name: &str) -> Result<Vec<IdMapping>, Fault> {
    let path = format!("/proc/{}/{name}", pid.as_raw_nonzero());
    let text = read_to_string(&path).at_path(Step::Report, &path)?;
    text.lines()
        .map(|line| {
            let mut numbers = line.split_whitespace().map(str::parse);
            match (numbers.next(), numbers.next(), numbers.next()) {
                (Some(Ok(inside)), Some(Ok(outside)), Some(Ok(count))) => {
                    Ok(IdMapping { inside, outside, count })
                }
                _ => Err(Fault::about(Step::Report, rustix::io::Errno::BADMSG, &*path)),
            }
        })
        .collect()
}
