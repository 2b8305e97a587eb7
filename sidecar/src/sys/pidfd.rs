//! What a pidfd tells of a process that is, or was, somebody else's child.

use std::os::fd::{AsFd, AsRawFd as _};

use rustix::io::Errno;

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

/// Whether a process has still its pid: it was not reaped.
pub(crate) fn has_pid(pidfd: impl AsFd) -> bool {
    // SAFETY: no signal is sent, and there is nothing to say of one.
    let sent = unsafe {
        libc::syscall(libc::SYS_pidfd_send_signal, pidfd.as_fd().as_raw_fd(), 0, std::ptr::null::<u8>(), 0)
    };
    check(sent) != Err(Errno::SRCH)
}
