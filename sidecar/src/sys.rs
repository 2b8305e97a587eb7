//! Every `unsafe` block of the sidecar: the few system calls that rustix has no safe form for.
//!
//! Each function here is safe to call; what its block relies on is written at the block. Forking is the one thing
//! that is only sound under a condition of the whole process, so it asks for a [`SingleThreaded`] as proof.

pub(crate) mod clone;
pub(crate) mod descriptors;
pub(crate) mod exec;
pub(crate) mod memory;
pub(crate) mod mount;
pub(crate) mod namespace;
pub(crate) mod network;
pub(crate) mod notification;
pub(crate) mod perf;
pub(crate) mod pidfd;
pub(crate) mod ptrace;
pub(crate) mod reactor;
pub(crate) mod schedule;
pub(crate) mod seccomp;
pub(crate) mod signals;
pub(crate) mod wait;

pub(crate) use clone::SingleThreaded;

use rustix::io::Errno;

/// `errno` of the call that just failed.
fn last_errno() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

/// Turns libc's `-1` into the errno behind it.
fn check(result: libc::c_long) -> rustix::io::Result<libc::c_long> {
    if result < 0 { Err(last_errno()) } else { Ok(result) }
}
