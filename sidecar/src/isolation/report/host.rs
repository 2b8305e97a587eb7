//! What a VM without namespaces lacks, and why: its report hides none of it.

use agentvm_wire::vm::{Isolation, VmLimits};

use crate::isolation::landlock;
use crate::isolation::plan::Plan;

/// All that does not hold, by stable names.
pub(super) fn partial(plan: &Plan, landlock_abi: Option<u32>) -> Vec<(String, String)> {
    let mut partial = Vec::new();
    let mut add = |what: &str, why: &str| partial.push((what.to_owned(), why.to_owned()));
    add("namespaces", "its processes, network, host name and mounts are those of the host");
    add("disk", "what it writes is on the host's disk, and nothing limits that");
    add("trees", "who leaves both its parents and its session is nobody's descendant, and ends with the VM");
    if pid_max() > VmLimits::PID_MAX {
        add(
            "pid_max",
            "pids of the host may be as high as those that stand for processes which are being started",
        );
    }
    if plan.isolation == Isolation::None {
        add("everything", "nothing is kept from it that the sidecar's user may do");
    } else {
        confined(plan, landlock_abi.unwrap_or(0), &mut add);
    }
    partial.extend(super::of_any(plan));
    partial
}

fn confined(plan: &Plan, abi: u32, add: &mut impl FnMut(&str, &str)) {
    add("proc", "it sees the host's process table");
    add(
        "metadata",
        "it may ask for names, sizes and times of the host's files by path, and watch folders for changes",
    );
    if !plan.shares_uid() {
        return;
    }
    add("supervisor", "it may end or stop what starts and reaps it, and with that its own VM");
    add(
        "attributes",
        "of files of the sidecar's user it may change modes, times and extended attributes by path",
    );
    add("priorities", "it may change the priorities and processors of other processes of the sidecar's user");
    if abi < landlock::TRUNCATION {
        add(
            "truncation",
            "it may empty files of the sidecar's user by path: that is refused only since Linux 6.2",
        );
    }
    if abi < landlock::SIGNALS {
        add(
            "signals",
            "it may signal every process of the sidecar's user: that is refused only since Linux 6.12",
        );
    }
}

fn pid_max() -> u64 {
    let text = std::fs::read_to_string("/proc/sys/kernel/pid_max").unwrap_or_default();
    text.trim().parse().unwrap_or(u64::MAX)
}
