//! What one pid namespace calls the processes of another (`ioctl_nsfs(2)`).

use std::os::fd::{AsFd, AsRawFd as _};

use rustix::process::Pid;

use super::check;

/// `NS_GET_TGID_IN_PIDNS`.
const GET_PROCESS_IN: libc::Ioctl = 0x8004_b709;

/// The process of a thread, as a pid namespace counts that this one can see into. ENOTTY before Linux 6.12.
pub(crate) fn process_in(namespace: impl AsFd, thread: Pid) -> rustix::io::Result<u32> {
    let thread = thread.as_raw_nonzero().get();
    // SAFETY: this request takes a number by value.
    let process =
        check(unsafe { libc::ioctl(namespace.as_fd().as_raw_fd(), GET_PROCESS_IN, thread) }.into())?;
    Ok(u32::try_from(process).unwrap_or(0))
}
