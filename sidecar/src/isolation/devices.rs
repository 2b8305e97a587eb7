//! The private `/dev`: six harmless devices of the host, a devpts instance of the VM's own, shared memory on the VM's
//! tmpfs, and the usual links. The nodes and links are read-only and shared by all VMs.

use std::os::fd::OwnedFd;

use rustix::mount::MountAttrFlags;

use super::mounts::{attach, copy_tree, new_filesystem, restrict};
use super::path::{make_file, make_folder, make_link, open_place};
use super::{At as _, Fault, Step};

/// Character devices that hold no state of the host.
pub(crate) const NODES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];

/// Links every program expects.
const LINKS: [(&str, &str); 5] = [
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
    ("ptmx", "pts/ptmx"),
];

/// Where the VM's tmpfs keeps what `/dev/shm` shows.
pub(crate) const SHARED_MEMORY: &str = "run/shm";

/// Pseudo-terminals a VM may have at once.
const TERMINALS: &str = "64";

/// Copies the host's device nodes, mounted nowhere yet.
pub(crate) fn pick_up(host: &OwnedFd) -> Result<Vec<(&'static str, OwnedFd)>, Fault> {
    NODES
        .into_iter()
        .map(|name| {
            let path = format!("dev/{name}");
            let node = copy_tree(host, &path).at_path(Step::Base, format!("/{path}"))?;
            restrict(&node, MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC)
                .at_path(Step::Base, &path)?;
            Ok((name, node))
        })
        .collect()
}

/// Fills `dev` of the base.
pub(crate) fn lay_out(base: &OwnedFd, nodes: Vec<(&'static str, OwnedFd)>) -> Result<(), Fault> {
    for (name, node) in nodes {
        let path = format!("dev/{name}");
        make_file(Step::Base, base, &path, 0o666, b"")?;
        let place = open_place(base, &path).at_path(Step::Base, &path)?;
        attach(&node, &place).at_path(Step::Base, &path)?;
    }
    for (name, target) in LINKS {
        make_link(Step::Base, base, &format!("dev/{name}"), target)?;
    }
    make_folder(Step::Base, base, "dev/pts", 0o755, None)?;
    make_folder(Step::Base, base, "dev/shm", 0o755, None)
}

/// Mounts `/dev` of a VM: the base's, with terminals and shared memory of its own.
pub(crate) fn mount(base: &OwnedFd, root: &OwnedFd) -> Result<(), Fault> {
    let dev = copy_tree(base, "dev").at_path(Step::Devices, "dev")?;
    attach_at(root, "dev", &dev)?;
    let options = [("newinstance", ""), ("ptmxmode", "0666"), ("mode", "0620"), ("max", TERMINALS)];
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    let terminals = new_filesystem("devpts", &options, attributes).at_path(Step::Devices, "devpts")?;
    attach_at(root, "dev/pts", &terminals)?;
    let shared = copy_tree(root, SHARED_MEMORY).at_path(Step::Devices, SHARED_MEMORY)?;
    attach_at(root, "dev/shm", &shared)
}

fn attach_at(root: &OwnedFd, path: &str, mount: &OwnedFd) -> Result<(), Fault> {
    let place = open_place(root, path).at_path(Step::Devices, path)?;
    attach(mount, &place).at_path(Step::Devices, path)
}
