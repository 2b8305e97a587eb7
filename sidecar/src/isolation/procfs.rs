//! The VM's own `/proc`, the kernel settings of its namespaces, and the masks over what would tell about the host
//! (`proc(5)`).

use std::os::fd::OwnedFd;

use agentvm_wire::vm::VmLimits;
use rustix::io::Errno;
use rustix::mount::MountAttrFlags;

use super::mounts::{attach, copy_tree, new_filesystem, restrict};
use super::path::{open_place, write_setting};
use super::{At as _, Fault, Step};

/// Files that speak of the host or reach it: covered by `/dev/null`.
const MASKED_FILES: [&str; 13] = [
    "keys",
    "key-users",
    "kallsyms",
    "cmdline",
    "config.gz",
    "kcore",
    "kmsg",
    "iomem",
    "timer_list",
    "sched_debug",
    "latency_stats",
    "interrupts",
    "sysrq-trigger",
];

/// The same for folders: covered by an empty one.
const MASKED_FOLDERS: [&str; 5] = ["irq", "fs", "acpi", "scsi", "bus"];

/// Folders that stay visible but cannot be written.
const READ_ONLY: [&str; 2] = ["sys", "pressure"];

/// Settings of the VM's own user namespace (`namespaces(7)`, `inotify(7)`): no nested user namespaces, and a share of
/// the inotify instances that leaves the host some, since they count against the host's user too.
const SETTINGS: [(&str, &str); 3] = [
    ("sys/user/max_user_namespaces", "0"),
    ("sys/user/max_inotify_instances", "64"),
    ("sys/user/max_inotify_watches", "32768"),
];

/// The pid limit of the VM's pid namespace; its own only since Linux 6.14.
const PID_MAX: &str = "sys/kernel/pid_max";

/// Mounts `/proc` below `root`.
pub(crate) fn mount(root: &OwnedFd) -> Result<OwnedFd, Fault> {
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    let proc = new_filesystem("proc", &[], attributes).at_path(Step::Proc, "/proc")?;
    let place = open_place(root, "proc").at_path(Step::Proc, "/proc")?;
    attach(&proc, &place).at_path(Step::Proc, "/proc")?;
    Ok(proc)
}

/// Sets the kernel settings of this VM. Returns whether its pids stay below the synthetic ones.
pub(crate) fn set_sysctls(proc: &OwnedFd) -> Result<bool, Fault> {
    for (path, value) in SETTINGS {
        match write_setting(Step::Sysctls, proc, path, value) {
            Ok(()) => {}
            // A kernel without inotify has nothing to limit.
            Err(fault) if fault.errno == libc::ENOENT && path.contains("inotify") => {}
            Err(fault) => return Err(fault),
        }
    }
    Ok(write_setting(Step::Sysctls, proc, PID_MAX, &VmLimits::PID_MAX.to_string()).is_ok())
}

/// Covers what would tell about the host, and makes the settings read-only, for whoever will be root in here.
pub(crate) fn mask(base: &OwnedFd, proc: &OwnedFd) -> Result<(), Fault> {
    let files = MASKED_FILES.map(|path| (path, "dev/null"));
    let folders = MASKED_FOLDERS.map(|path| (path, "empty"));
    for (path, cover) in files.into_iter().chain(folders) {
        let Some(place) = find(proc, path)? else { continue };
        let cover = copy_tree(base, cover).at_path(Step::Masks, path)?;
        attach(&cover, &place).at_path(Step::Masks, path)?;
    }
    for path in READ_ONLY {
        let Some(place) = find(proc, path)? else { continue };
        let copy = copy_tree(proc, path).at_path(Step::Masks, path)?;
        restrict(&copy, MountAttrFlags::MOUNT_ATTR_RDONLY).at_path(Step::Masks, path)?;
        attach(&copy, &place).at_path(Step::Masks, path)?;
    }
    Ok(())
}

/// Not every kernel has all of them.
fn find(proc: &OwnedFd, path: &str) -> Result<Option<OwnedFd>, Fault> {
    match open_place(proc, path) {
        Ok(place) => Ok(Some(place)),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(Fault::about(Step::Masks, errno, path)),
    }
}
