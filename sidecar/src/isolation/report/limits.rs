//! The limits of a VM, each read back from what enforces it.

use agentvm_wire::vm::{LimitReport, VmConfig};

use super::Facts;
use crate::isolation::cgroup::{Controller, Group};
use crate::isolation::plan::Plan;

/// All that a VM of this level has, whether or not they were asked for.
pub(super) fn report(plan: &Plan, config: &VmConfig, facts: &Facts, group: &Group) -> Vec<LimitReport> {
    let (limits, layer) = (&config.limits, &config.writable_layer);
    let of_group = |name, requested, controller| match group.limit(controller) {
        Some(effective) => limit(name, requested, Some(effective), "cgroup"),
        None => LimitReport {
            missing: group.missing(controller).map(str::to_owned),
            ..limit(name, requested, None, "none")
        },
    };
    let mut pids = of_group("pids", limits.pids, Controller::Pids);
    if let (None, Some(own)) = (pids.effective, plan.limits.pids) {
        (pids.effective, pids.enforced_by) = (Some(own), "rlimit".to_owned());
    }
    let share = LimitReport {
        missing: group.missing(Controller::Cpu).map(str::to_owned),
        ..limit("cpu_share", None, group.share(), "cgroup")
    };
    let mut all = vec![
        pids,
        of_group("memory_bytes", limits.memory_bytes, Controller::Memory),
        of_group("cpu_millicores", limits.cpu_millicores, Controller::Cpu),
        share,
        limit("open_files", limits.open_files, Some(plan.limits.open_files), "rlimit"),
        limit("file_size_bytes", limits.file_size_bytes, plan.limits.file_size.or(facts.file_size), "rlimit"),
        limit("core_bytes", limits.core_bytes, facts.core, "rlimit"),
    ];
    if let Some((bytes, inodes)) = facts.disk {
        all.push(limit("pid_max", None, facts.pid_max, "sysctl"));
        all.push(limit("disk_bytes", layer.size_bytes, Some(bytes), "tmpfs"));
        all.push(limit("disk_inodes", layer.inodes, Some(inodes), "tmpfs"));
    }
    all
}

/// Nothing enforces what is not limited.
fn limit(name: &str, requested: Option<u64>, effective: Option<u64>, enforced_by: &str) -> LimitReport {
    LimitReport {
        name: name.to_owned(),
        requested,
        effective,
        enforced_by: if effective.is_some() { enforced_by } else { "none" }.to_owned(),
        missing: None,
    }
}
