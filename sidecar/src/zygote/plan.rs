//! From a client's `VmConfig` to a [`Plan`]: defaults filled in, limits clamped, nonsense refused.

use std::collections::BTreeMap;

use agentvm_wire::id::VmId;
use agentvm_wire::vm::{Isolation, VmConfig, VmLimits, WritableLayer};
use rustix::io::Errno;
use rustix::process::{Resource, geteuid, getrlimit};
use rustix::system::uname;

use crate::isolation::cgroup::{EntryKinds, GroupLimits};
use crate::isolation::identity::{Guest, IdMaps};
use crate::isolation::plan::{GuestLimits, Plan};
use crate::isolation::private_folder::PrivateFolder;
use crate::isolation::rlimits;
use crate::isolation::uid_ranges::UidRange;
use crate::isolation::{Fault, Step};

/// Working directory of a process that names none.
const WORKSPACE: &str = "/workspace";

/// Where programs are looked for.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// What a file takes of memory beside its content, roughly: its inode and its name.
const BYTES_PER_INODE: u64 = 2 << 10;

/// What a sandbox shall be.
pub(super) fn sandbox(id: VmId, config: &VmConfig, range: Option<&UidRange>) -> Result<Plan, Fault> {
    validate(config)?;
    let hostname = config.hostname.clone().unwrap_or_else(|| id.to_string());
    let cwd = config.cwd.clone().unwrap_or_else(|| WORKSPACE.to_owned());
    let layer = &config.writable_layer;
    Ok(Plan {
        isolation: Isolation::Sandbox,
        folder: None,
        hostname,
        cwd,
        guest: Guest { root: config.user.root },
        id_maps: range.map_or(IdMaps::Single, |range| IdMaps::Range(range.first_id())),
        size_bytes: at_most(config, layer.size_bytes.unwrap_or(WritableLayer::DEFAULT_SIZE_BYTES), 2),
        inodes: at_most(config, layer.inodes.unwrap_or(WritableLayer::DEFAULT_INODES), BYTES_PER_INODE * 4),
        limits: limits(&config.limits)?,
        entry: EntryKinds::default(),
        own_share: false,
        failing: None,
    })
}

/// Who guests without namespaces are: users of their own, or the sidecar's, but never root.
pub(super) fn guest_on_host(range: Option<&UidRange>) -> Result<IdMaps, Fault> {
    match range {
        Some(range) => Ok(IdMaps::Host(Some(range.first_id() + Guest::AGENTOS))),
        None if geteuid().is_root() => Err(Fault::about(Step::UidRange, Errno::PERM, "confined")),
        None => Ok(IdMaps::Host(None)),
    }
}

/// Refuses what only a sandbox has; EOPNOTSUPP.
pub(super) fn check_on_host(config: &VmConfig, ids: IdMaps, counts_pids: bool) -> Result<(), Fault> {
    validate(config)?;
    let layer = &config.writable_layer;
    let shares_uid = ids == IdMaps::Host(None);
    let asked = [
        ("user.root", config.user.root),
        ("hostname", config.hostname.is_some()),
        ("writable_layer.size_bytes", layer.size_bytes.is_some()),
        ("writable_layer.inodes", layer.inodes.is_some()),
        ("cwd", config.cwd.is_some() && config.isolation == Isolation::Confined),
        ("limits.pids", config.limits.pids.is_some() && shares_uid && !counts_pids),
    ];
    match asked.into_iter().find(|(_, asked)| *asked) {
        Some((field, _)) => Err(Fault::about(Step::Config, Errno::OPNOTSUPP, field)),
        None => Ok(()),
    }
}

/// What a VM without namespaces shall be.
pub(super) fn on_host(config: &VmConfig, ids: IdMaps, folder: PrivateFolder) -> Result<Plan, Fault> {
    let limits = limits(&config.limits)?;
    let shares_uid = ids == IdMaps::Host(None);
    Ok(Plan {
        isolation: config.isolation,
        hostname: uname().nodename().to_string_lossy().into_owned(),
        cwd: config.cwd.clone().unwrap_or_else(|| folder.workspace()),
        folder: Some(folder),
        guest: Guest { root: false },
        id_maps: ids,
        size_bytes: 0,
        inodes: 0,
        limits: GuestLimits { pids: limits.pids.filter(|_| !shares_uid), ..limits },
        entry: EntryKinds::default(),
        own_share: false,
        failing: None,
    })
}

fn validate(config: &VmConfig) -> Result<(), Fault> {
    config.validate().map_err(|rejection| refuse(rejection.details.field.as_deref().unwrap_or("config")))
}

/// The environment of the VM's processes.
pub(super) fn environment(plan: &Plan, config: &VmConfig) -> BTreeMap<String, String> {
    let (home, user) = (plan.home(), user_name(plan));
    let own = [
        ("PATH", PATH),
        ("HOME", &home),
        ("USER", &user),
        ("LOGNAME", &user),
        ("SHELL", "/bin/sh"),
        ("LANG", "C.UTF-8"),
        ("TERM", "xterm-256color"),
    ];
    let mut environment: BTreeMap<_, _> = own.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
    environment.extend(plan.folder.as_ref().map(|folder| ("TMPDIR".to_owned(), folder.tmp())));
    environment.extend(config.env.clone());
    environment
}

/// Without a sandbox, as the host calls that user (`passwd(5)`), or the number of one it does not know.
fn user_name(plan: &Plan) -> String {
    if plan.folder.is_none() {
        return plan.guest.name().to_owned();
    }
    let uid = plan.guest_id().to_string();
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let mut users = users.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let user = users.find(|fields| fields.get(2) == Some(&&*uid));
    user.and_then(|fields| fields.first().map(|name| (*name).to_owned())).unwrap_or(uid)
}

/// Files take memory: no more of it than this part of what the VM may use.
fn at_most(config: &VmConfig, requested: u64, divisor: u64) -> u64 {
    config.limits.memory_bytes.map_or(requested, |memory| requested.min((memory / divisor).max(1)))
}

/// What the VM may use as a whole.
pub(super) fn group_limits(requested: &VmLimits) -> GroupLimits {
    GroupLimits {
        pids: requested.pids.unwrap_or(VmLimits::DEFAULT_PIDS),
        memory_bytes: requested.memory_bytes,
        cpu_millicores: requested.cpu_millicores,
    }
}

fn limits(requested: &VmLimits) -> Result<GuestLimits, Fault> {
    if requested.core_bytes.is_some() && rlimits::cores_are_piped() {
        return Err(Fault::about(Step::Limits, Errno::OPNOTSUPP, "limits.core_bytes"));
    }
    let open_files = requested.open_files.unwrap_or(VmLimits::DEFAULT_OPEN_FILES);
    let own = getrlimit(Resource::Nofile).current.map_or(u64::MAX, |own| own / 4);
    Ok(GuestLimits {
        pids: Some(rlimits::clamp(Resource::Nproc, requested.pids.unwrap_or(VmLimits::DEFAULT_PIDS))),
        open_files: rlimits::clamp(Resource::Nofile, open_files.min(own)),
        file_size: requested.file_size_bytes.map(|bytes| rlimits::clamp(Resource::Fsize, bytes)),
        core: requested.core_bytes.map(|bytes| rlimits::clamp(Resource::Core, bytes)),
    })
}

pub(super) fn refuse(field: &str) -> Fault {
    Fault::about(Step::Config, Errno::INVAL, field)
}
