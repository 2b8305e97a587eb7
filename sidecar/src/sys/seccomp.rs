//! `seccomp(2)`: installing a filter program.

use libc::sock_filter;
use rustix::io::Errno;

use super::check;

/// Adds a filter to this thread, on top of those it has. Needs `no_new_privs`.
pub(crate) fn install_filter(program: &[sock_filter]) -> rustix::io::Result<()> {
    let header = libc::sock_fprog {
        len: u16::try_from(program.len()).map_err(|_| Errno::INVAL)?,
        filter: program.as_ptr().cast_mut(),
    };
    // SAFETY: the header names `len` instructions, which the kernel only reads, and checks before it accepts
    // them.
    check(unsafe {
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0usize, &raw const header)
    })
    .map(drop)
}
