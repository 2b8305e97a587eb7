//! The root of a VM, `host_tools`: one tmpfs of its own that holds everything the guest writes, with the base's
//! read-only parts mounted into it.

use std::os::fd::OwnedFd;

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::mount::MountAttrFlags;

use super::base::{self, Base, Tool};
use super::mounts::{attach, copy_tree, new_filesystem};
use super::path::{Owner, make_folder, make_folders, make_link, open_place};
use super::plan::Plan;
use super::{At as _, Fault, Step, devices, etc, procfs};

/// Folders of the root: path, mode.
const FOLDERS: [(&str, u32); 11] = [
    ("dev", 0o755),
    ("etc", 0o755),
    ("home", 0o755),
    ("proc", 0o555),
    ("run", 0o755),
    (devices::SHARED_MEMORY, 0o1777),
    ("tmp", 0o1777),
    ("usr", 0o755),
    ("var", 0o755),
    ("var/lib", 0o755),
    ("var/tmp", 0o1777),
];

/// What was built, for the report.
#[derive(Debug)]
pub(crate) struct Built {
    /// Whether the VM's pids stay below the synthetic ones.
    pub pid_max_holds: bool,
}

/// Builds the root and moves this process into it. Needs the VM's namespaces, and the base as the current root.
pub(crate) fn build(plan: &Plan, base: &Base) -> Result<Built, Fault> {
    let host = openat(CWD, "/", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .at_path(Step::RootTmpfs, "/")?;

    plan.reach(Step::RootTmpfs)?;
    let root = mount_tmpfs(plan, &host)?;
    plan.reach(Step::Folders)?;
    make_root_folders(plan, base, &root)?;
    plan.reach(Step::HostTools)?;
    mount_tools(base, &host, &root)?;
    plan.reach(Step::Etc)?;
    etc::generate(plan, &base.etc, &host, &root)?;
    plan.reach(Step::Devices)?;
    devices::mount(&host, &root)?;
    plan.reach(Step::Proc)?;
    let proc = procfs::mount(&root)?;
    plan.reach(Step::Sysctls)?;
    let pid_max_holds = procfs::set_sysctls(&proc)?;
    plan.reach(Step::Masks)?;
    procfs::mask(&host, &proc)?;
    plan.reach(Step::Cwd)?;
    make_folders(Step::Cwd, &root, &plan.cwd, Owner::id(plan.guest.id()))?;
    plan.reach(Step::PivotRoot)?;
    base::enter(&root, Step::PivotRoot)?;
    Ok(Built { pid_max_holds })
}

fn mount_tmpfs(plan: &Plan, host: &OwnedFd) -> Result<OwnedFd, Fault> {
    let (size, inodes) = (plan.size_bytes.to_string(), plan.inodes.to_string());
    let options = [("size", size.as_str()), ("nr_inodes", &inodes), ("mode", "0755")];
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    let root = new_filesystem("tmpfs", &options, attributes).at_path(Step::RootTmpfs, "/")?;
    let place = open_place(host, "vm").at_path(Step::RootTmpfs, "vm")?;
    attach(&root, &place).at_path(Step::RootTmpfs, "vm")?;
    Ok(root)
}

fn make_root_folders(plan: &Plan, base: &Base, root: &OwnedFd) -> Result<(), Fault> {
    let step = Step::Folders;
    for (path, mode) in FOLDERS {
        make_folder(step, root, path, mode, None)?;
    }
    let guest = Some(Owner::id(plan.guest.id()));
    make_folder(step, root, "root", 0o700, None)?;
    make_folder(step, root, &plan.guest.home()[1..], 0o755, guest)?;
    make_folder(step, root, "workspace", 0o755, guest)?;
    for tool in &base.tools {
        match tool {
            Tool::Link { name, target } => make_link(step, root, name, target)?,
            Tool::Folder { name } => make_folder(step, root, name, 0o755, None)?,
        }
    }
    Ok(())
}

fn mount_tools(base: &Base, host: &OwnedFd, root: &OwnedFd) -> Result<(), Fault> {
    let folders = base.tools.iter().filter_map(|tool| match tool {
        Tool::Folder { name } => Some(*name),
        Tool::Link { .. } => None,
    });
    for name in folders.chain(["usr"]) {
        let copy = copy_tree(host, name).at_path(Step::HostTools, name)?;
        let place = open_place(root, name).at_path(Step::HostTools, name)?;
        attach(&copy, &place).at_path(Step::HostTools, name)?;
    }
    Ok(())
}
