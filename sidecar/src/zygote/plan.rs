//! From a client's `VmConfig` to a [`Plan`]: defaults filled in, limits clamped, nonsense refused.

use std::collections::BTreeMap;

use agentvm_wire::id::VmId;
use agentvm_wire::vm::{Isolation, VmConfig, VmLimits, WritableLayer};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use crate::isolation::identity::{Guest, IdMaps};
use crate::isolation::plan::{GuestLimits, Plan};
use crate::isolation::rlimits;
use crate::isolation::uid_ranges::UidRange;
use crate::isolation::{Fault, Step};

/// Working directory of a process that names none.
const WORKSPACE: &str = "/workspace";

/// Where programs are looked for.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// What one VM shall be.
pub(super) fn plan(id: VmId, config: &VmConfig, range: Option<&UidRange>) -> Result<Plan, Fault> {
    match config.isolation {
        Isolation::Sandbox => {}
        _ => return Err(refuse("isolation")),
    }
    let hostname = config.hostname.clone().unwrap_or_else(|| id.to_string());
    if !is_hostname(&hostname) {
        return Err(refuse("hostname"));
    }
    let cwd = config.cwd.clone().unwrap_or_else(|| WORKSPACE.to_owned());
    if !cwd.starts_with('/') || cwd.contains('\0') {
        return Err(refuse("cwd"));
    }
    let layer = &config.writable_layer;
    for (field, value) in [
        // To a tmpfs, zero is no limit.
        ("writable_layer.size_bytes", layer.size_bytes),
        ("writable_layer.inodes", layer.inodes),
        ("limits.pids", config.limits.pids),
        ("limits.open_files", config.limits.open_files),
    ] {
        if value == Some(0) {
            return Err(refuse(field));
        }
    }
    Ok(Plan {
        hostname,
        cwd,
        guest: Guest { root: config.user.root },
        id_maps: range.map_or(IdMaps::Single, |range| IdMaps::Range(range.first_id())),
        size_bytes: layer.size_bytes.unwrap_or(WritableLayer::DEFAULT_SIZE_BYTES),
        inodes: layer.inodes.unwrap_or(WritableLayer::DEFAULT_INODES),
        limits: limits(&config.limits),
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

fn limits(requested: &VmLimits) -> GuestLimits {
    let open_files = requested.open_files.unwrap_or(VmLimits::DEFAULT_OPEN_FILES);
    let own = getrlimit(Resource::Nofile).current.map_or(u64::MAX, |own| own / 4);
    GuestLimits {
        pids: rlimits::clamp(Resource::Nproc, requested.pids.unwrap_or(VmLimits::DEFAULT_PIDS)),
        open_files: rlimits::clamp(Resource::Nofile, open_files.min(own)),
    }
}

fn is_hostname(name: &str) -> bool {
    (1..=64).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'.' || byte == b'-')
}

fn refuse(field: &str) -> Fault {
    Fault::about(Step::Config, Errno::INVAL, field)
}
