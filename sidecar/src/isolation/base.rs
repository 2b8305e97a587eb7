//! The base: what all VMs of a sidecar share read-only, prepared once by the zygote in a mount tree of its own.
//!
//! ```text
//!  /           tmpfs, read-only in the end
//!  ├── usr     the host's /usr: ro, nosuid, nodev, with the hide list covered
//!  ├── bin …   only where the host's are folders rather than links into /usr
//!  ├── dev     device nodes and links, see `devices`
//!  ├── etc     folders and large files of the generated /etc, see `etc`
//!  ├── empty   an empty folder, to cover others with
//!  ├── proc    the host's /proc: the kernel allows a new one in a VM only if an uncovered one is in sight
//!  └── vm      where a VM's init puts its new root before it moves there
//! ```
//!
//! Each VM's mount namespace starts as a copy of this small tree, in a user namespace that does not own it: the kernel
//! locks these mounts and their restrictions there.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};
use rustix::io::Errno;
use rustix::mount::{
    MountAttrFlags, MountPropagationFlags, MoveMountFlags, UnmountFlags, mount_change, move_mount, unmount,
};
use rustix::process::{chdir, chroot, fchdir, pivot_root};

use super::etc::Template;
use super::mounts::{attach, copy_tree, new_filesystem, restrict, restrict_tree};
use super::path::{make_folder, open_place};
use super::{At as _, Fault, Step, devices, etc};

/// Folders of `/usr` a VM does not see. A trailing `*` stands for any ending.
const HIDDEN: [&str; 4] = ["src", "local/etc", "lib/credstore*", "lib/debug"];

/// What hangs in the root of a host and belongs to its tools.
const TOOL_FOLDERS: [&str; 6] = ["bin", "sbin", "lib", "lib32", "lib64", "libx32"];

/// Restrictions of everything that comes from the host.
const READ_ONLY: MountAttrFlags = MountAttrFlags::MOUNT_ATTR_RDONLY
    .union(MountAttrFlags::MOUNT_ATTR_NOSUID)
    .union(MountAttrFlags::MOUNT_ATTR_NODEV);

/// What init needs to know about the base.
#[derive(Debug)]
pub(crate) struct Base {
    /// `/bin` and its like.
    pub tools: Vec<Tool>,
    /// The generated `/etc`.
    pub etc: Template,
}

/// One entry of the host's root that belongs to its tools.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Tool {
    /// A link, as on hosts with a merged `/usr`.
    Link {
        /// E.g. `bin`.
        name: &'static str,
        /// E.g. `usr/bin`.
        target: String,
    },
    /// A folder of its own.
    Folder {
        /// E.g. `bin`.
        name: &'static str,
    },
}

impl Base {
    /// Builds the base and moves this process into it. Needs a mount namespace of its own.
    pub(crate) fn build() -> Result<Self, Fault> {
        mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
            .at_path(Step::MountNamespace, "/")?;
        let host = openat(CWD, "/", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
            .at_path(Step::Base, "/")?;

        // Everything of the host is picked up before the new tree covers a part of it.
        let usr = read_only_copy(&host, "usr")?;
        let proc = copy_tree(&host, "proc").at_path(Step::Base, "/proc")?;
        let tools = tools_of(&host)?;
        let device_nodes = devices::pick_up(&host)?;
        let mut folders = Vec::new();
        for tool in &tools {
            if let Tool::Folder { name } = tool {
                folders.push((*name, read_only_copy(&host, name)?));
            }
        }

        let root =
            new_filesystem("tmpfs", &[("mode", "0755")], READ_ONLY & !MountAttrFlags::MOUNT_ATTR_RDONLY)
                .at_path(Step::Base, "tmpfs")?;
        // Any folder will do as the place; this one exists wherever there are tools to share.
        move_mount(root.as_fd(), "", host.as_fd(), "usr", MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
            .at_path(Step::Base, "/usr")?;
        for name in ["usr", "dev", "etc", "empty", "proc", "vm"] {
            make_folder(Step::Base, &root, name, 0o755, None)?;
        }
        mount_at(&root, "usr", &usr)?;
        mount_at(&root, "proc", &proc)?;
        for (name, folder) in folders {
            make_folder(Step::Base, &root, name, 0o755, None)?;
            mount_at(&root, name, &folder)?;
        }
        devices::lay_out(&root, device_nodes)?;
        let etc = etc::copy(&host, &root)?;
        hide(&root)?;
        restrict(&root, READ_ONLY).at_path(Step::Base, "/")?;
        enter(&root, Step::MountNamespace)?;
        Ok(Self { tools, etc })
    }
}

/// Makes `root`, an attached mount, the root of this process, and lets go of the old one.
///
/// On an initramfs the kernel refuses `pivot_root` (EINVAL, see its manual): there the mount is moved over the root.
pub(crate) fn enter(root: &OwnedFd, step: Step) -> Result<(), Fault> {
    fchdir(root).at(step)?;
    match pivot_root(".", ".") {
        Ok(()) => unmount(".", UnmountFlags::DETACH).at_path(step, "old root")?,
        Err(Errno::INVAL) => {
            move_mount(CWD, ".", CWD, "/", MoveMountFlags::empty()).at_path(step, "/")?;
            chroot(".").at_path(step, ".")?;
        }
        Err(errno) => return Err(Fault::new(step, errno)),
    }
    chdir("/").at_path(step, "/")
}

fn read_only_copy(host: &OwnedFd, name: &str) -> Result<OwnedFd, Fault> {
    let copy = copy_tree(host, name).at_path(Step::Base, format!("/{name}"))?;
    restrict_tree(&copy, READ_ONLY).at_path(Step::Base, format!("/{name}"))?;
    Ok(copy)
}

fn mount_at(root: &OwnedFd, name: &str, mount: &OwnedFd) -> Result<(), Fault> {
    let place = open_place(root, name).at_path(Step::Base, name)?;
    attach(mount, &place).at_path(Step::Base, name)
}

/// Which of `/bin` and its like the host has, and how.
pub(crate) fn tools_of(host: impl AsFd) -> Result<Vec<Tool>, Fault> {
    let host = host.as_fd();
    let mut tools = Vec::new();
    for name in TOOL_FOLDERS {
        match rustix::fs::readlinkat(host, name, Vec::new()) {
            Ok(target) => {
                let target = target.to_string_lossy().into_owned();
                tools.push(Tool::Link { name, target });
            }
            Err(Errno::NOENT) => {}
            // Not a link.
            Err(Errno::INVAL) => tools.push(Tool::Folder { name }),
            Err(errno) => return Err(Fault::about(Step::Base, errno, format!("/{name}"))),
        }
    }
    Ok(tools)
}

/// Covers the hide list with an empty folder.
fn hide(root: &OwnedFd) -> Result<(), Fault> {
    let usr = open_place(root, "usr").at_path(Step::Base, "usr")?;
    for pattern in HIDDEN {
        for path in expand(&usr, pattern)? {
            let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_SYMLINKS;
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            match openat2(&usr, &path, flags, Mode::empty(), resolve) {
                Ok(place) => {
                    let cover = copy_tree(root, "empty").at_path(Step::Base, "empty")?;
                    restrict(&cover, READ_ONLY).at_path(Step::Base, "empty")?;
                    attach(&cover, &place).at_path(Step::Base, &path)?;
                }
                // Absent; or a link, which in a VM leads to what the VM has there.
                Err(Errno::NOENT | Errno::LOOP | Errno::NOTDIR) => {}
                Err(errno) => return Err(Fault::about(Step::Base, errno, path)),
            }
        }
    }
    Ok(())
}

fn expand(usr: &OwnedFd, pattern: &str) -> Result<Vec<String>, Fault> {
    let Some(stem) = pattern.strip_suffix('*') else { return Ok(vec![pattern.to_owned()]) };
    let (folder, start) = stem.rsplit_once('/').unwrap_or((".", stem));
    let open = openat(usr, folder, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
    let open = match open {
        Ok(open) => open,
        Err(Errno::NOENT) => return Ok(Vec::new()),
        Err(errno) => return Err(Fault::about(Step::Base, errno, folder)),
    };
    let mut paths = Vec::new();
    for entry in rustix::fs::Dir::new(open).at_path(Step::Base, folder)? {
        let entry = entry.at_path(Step::Base, folder)?;
        let name = entry.file_name().to_string_lossy();
        if name.starts_with(start) {
            paths.push(format!("{folder}/{name}"));
        }
    }
    Ok(paths)
}
