//! `seccomp(2)`: installing a filter program.

use std::os::fd::{FromRawFd as _, OwnedFd};

use libc::sock_filter;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::check;

/// An instruction, as it crosses a socket (`struct sock_filter`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Instruction {
    code: u16,
    jt: u8,
    jf: u8,
    k: u32,
}

impl From<sock_filter> for Instruction {
    fn from(sock_filter { code, jt, jf, k }: sock_filter) -> Self {
        Self { code, jt, jf, k }
    }
}

/// Adds a filter to this thread, on top of those it has. Needs `no_new_privs`.
pub(crate) fn install_filter(program: &[sock_filter]) -> rustix::io::Result<()> {
    set_filter(program, 0).map(drop)
}

/// The same for a program that asks a listener, which is closed at exec. EBUSY if another program has one.
pub(crate) fn install_listener(program: &[Instruction]) -> rustix::io::Result<OwnedFd> {
    let plain = |&Instruction { code, jt, jf, k }: &Instruction| sock_filter { code, jt, jf, k };
    let program: Vec<_> = program.iter().map(plain).collect();
    let listener = set_filter(&program, libc::SECCOMP_FILTER_FLAG_NEW_LISTENER)?;
    let listener = i32::try_from(listener).map_err(|_| Errno::OVERFLOW)?;
    // SAFETY: the kernel has just made it, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(listener) })
}

fn set_filter(program: &[sock_filter], flags: libc::c_ulong) -> rustix::io::Result<libc::c_long> {
    let header = libc::sock_fprog {
        len: u16::try_from(program.len()).map_err(|_| Errno::INVAL)?,
        filter: program.as_ptr().cast_mut(),
    };
    // SAFETY: the header names `len` instructions, which the kernel only reads, and checks before it accepts
    // them.
    check(unsafe {
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const header)
    })
}
