//! `mount_setattr(2)`: restricts a mount and everything below it.

use std::os::fd::{AsFd, AsRawFd as _};

use super::check;

/// Adds attributes (`MOUNT_ATTR_*`) to a mount, to all mounts below it if `recursive`, and makes them private.
pub(crate) fn restrict_mount(mount: impl AsFd, attributes: u64, recursive: bool) -> rustix::io::Result<()> {
    let request =
        libc::mount_attr { attr_set: attributes, attr_clr: 0, propagation: libc::MS_PRIVATE, userns_fd: 0 };
    let flags = libc::AT_EMPTY_PATH | if recursive { libc::AT_RECURSIVE } else { 0 };
    // SAFETY: the empty path is null-terminated, and the size passed is that of the structure.
    check(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_fd().as_raw_fd(),
            c"".as_ptr(),
            flags,
            &raw const request,
            size_of::<libc::mount_attr>(),
        )
    })
    .map(drop)
}
