//! Mounting by descriptor: nothing here takes a path that somebody could have redirected (`fsopen(2)`,
//! `open_tree(2)`, `move_mount(2)`).

use std::os::fd::{AsFd, OwnedFd};

use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags, fsconfig_create,
    fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, move_mount, open_tree,
};

use crate::sys::mount::restrict_mount;

/// A new file system of this kind, mounted nowhere yet. An option without a value is a flag.
pub(crate) fn new_filesystem(
    kind: &str,
    options: &[(&str, &str)],
    attributes: MountAttrFlags,
) -> rustix::io::Result<OwnedFd> {
    let context = fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (key, value) in options {
        if value.is_empty() {
            fsconfig_set_flag(context.as_fd(), *key)?;
        } else {
            fsconfig_set_string(context.as_fd(), *key, *value)?;
        }
    }
    fsconfig_create(context.as_fd())?;
    fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes)
}

/// A copy of what is mounted at a place, with everything mounted below it, mounted nowhere yet.
pub(crate) fn copy_tree(folder: impl AsFd, path: &str) -> rustix::io::Result<OwnedFd> {
    let flags =
        OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
    let flags = if path.is_empty() { flags | OpenTreeFlags::AT_EMPTY_PATH } else { flags };
    open_tree(folder.as_fd(), path, flags | OpenTreeFlags::AT_SYMLINK_NOFOLLOW)
}

/// Puts a mount that is mounted nowhere onto an open place.
pub(crate) fn attach(mount: impl AsFd, place: impl AsFd) -> rustix::io::Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    move_mount(mount.as_fd(), "", place.as_fd(), "", flags)
}

/// Adds restrictions to a mount and everything below it.
pub(crate) fn restrict_tree(mount: impl AsFd, attributes: MountAttrFlags) -> rustix::io::Result<()> {
    restrict_mount(mount, attributes.bits().into(), true)
}

/// Adds restrictions to one mount.
pub(crate) fn restrict(mount: impl AsFd, attributes: MountAttrFlags) -> rustix::io::Result<()> {
    restrict_mount(mount, attributes.bits().into(), false)
}
