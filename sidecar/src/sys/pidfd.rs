//! `PIDFD_GET_INFO` (`pidfd.h`): how a process has ended that was somebody else's child.

use std::os::fd::{AsFd, AsRawFd as _};

use super::check;

/// `PIDFD_GET_INFO` for the first version of the structure.
const GET_INFO: libc::c_ulong = 0xc040_ff0b;

/// `PIDFD_INFO_EXIT`.
const EXIT: u64 = 1 << 3;

/// `struct pidfd_info`, first version.
#[repr(C)]
struct Info {
    mask: u64,
    cgroup: u64,
    ids: [u32; 11],
    exit_code: i32,
}

/// The wait status of a process that was reaped; `None` if it was not, or the kernel cannot tell (before Linux 6.15).
pub(crate) fn exit_status(pidfd: impl AsFd) -> Option<i32> {
    let mut info = Info { mask: EXIT, cgroup: 0, ids: [0; 11], exit_code: 0 };
    // SAFETY: the structure has the size that the request names.
    let result = unsafe { libc::ioctl(pidfd.as_fd().as_raw_fd(), GET_INFO, &raw mut info) };
    check(result.into()).ok().filter(|_| info.mask & EXIT != 0).map(|_| info.exit_code)
}
