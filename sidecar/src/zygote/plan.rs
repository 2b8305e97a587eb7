//! From a client's `VmConfig` to a [`Plan`]: defaults filled in, limits clamped, nonsense refused.

use std::collections::BTreeMap;

use agentvm_wire::id::VmId;
use agentvm_wire::vm::{Isolation, VmConfig, VmLimits, WritableLayer};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use crate::isolation::cgroup::{EntryKinds, GroupLimits};
use crate::isolation::identity::{Guest, IdMaps};
use crate::isolation::plan::{GuestLimits, Plan};
use crate::isolation::rlimits;
use crate::isolation::uid_ranges::UidRange;
use crate::isolation::{Fault, Step};

/// Working directory of a process that names none.
const WORKSPACE: &str = "/workspace";

/// Where programs are looked for.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// What a file takes of memory beside its content, roughly: its inode and its name.
const BYTES_PER_INODE: u64 = 2 << 10;

/// What one VM shall be.
pub(super) fn plan(id: VmId, config: &VmConfig, range: Option<&UidRange>) -> Result<Plan, Fault> {
    match config.isolation {
        Isolation::Sandbox => {}
        _ => return Err(refuse("isolation")),
    }
    config.validate().map_err(|rejection| refuse(rejection.details.field.as_deref().unwrap_or("config")))?;
    let hostname = config.hostname.clone().unwrap_or_else(|| id.to_string());
    let cwd = config.cwd.clone().unwrap_or_else(|| WORKSPACE.to_owned());
    let layer = &config.writable_layer;
    Ok(Plan {
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

/// The environment of the VM's processes.
pub(super) fn environment(plan: &Plan, config: &VmConfig) -> BTreeMap<String, String> {
    let own = [
        ("PATH", PATH),
        ("HOME", plan.guest.home()),
        ("USER", plan.guest.name()),
        ("LOGNAME", plan.guest.name()),
        ("SHELL", "/bin/sh"),
        ("LANG", "C.UTF-8"),
        ("TERM", "xterm-256color"),
    ];
    let mut environment: BTreeMap<_, _> = own.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
    environment.extend(config.env.clone());
    environment
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
        pids: rlimits::clamp(Resource::Nproc, requested.pids.unwrap_or(VmLimits::DEFAULT_PIDS)),
        open_files: rlimits::clamp(Resource::Nofile, open_files.min(own)),
        file_size: requested.file_size_bytes.map(|bytes| rlimits::clamp(Resource::Fsize, bytes)),
        core: requested.core_bytes.map(|bytes| rlimits::clamp(Resource::Core, bytes)),
    })
}

fn refuse(field: &str) -> Fault {
    Fault::about(Step::Config, Errno::INVAL, field)
}
