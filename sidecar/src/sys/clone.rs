//! `clone(2)` and `unshare(2)`: new processes and new namespaces, for processes with one thread.

use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

use rustix::io::Errno;
use rustix::process::Pid;
use rustix::thread::UnshareFlags;

use super::check;

/// As in `linux/sched.h`; libc's has too few bits.
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// Proof that this process has one thread, so that a forked copy of it may run any code: no lock can be held by a
/// thread that does not exist in the copy.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SingleThreaded(());

impl SingleThreaded {
    /// Looks at `/proc/self/task`; zygote and init start no thread afterwards.
    pub(crate) fn check() -> Option<Self> {
        let threads = std::fs::read_dir("/proc/self/task").ok()?.count();
        (threads == 1).then_some(Self(()))
    }
}

/// Which side of a fork this is.
#[derive(Debug)]
pub(crate) enum Forked {
    /// The process that called.
    Parent(Pid),
    /// Its copy.
    Child,
}

/// Forks into new namespaces, and into a control group of version 2 if one is given; the parent also gets a pidfd. The
/// child's exit raises SIGCHLD.
pub(crate) fn fork_into_namespaces(
    _: SingleThreaded,
    namespaces: UnshareFlags,
    group: Option<&OwnedFd>,
) -> rustix::io::Result<(Forked, Option<OwnedFd>)> {
    let mut pidfd: libc::c_int = -1;
    let flags = namespaces.bits() | libc::CLONE_PIDFD.cast_unsigned();
    let pid = if let Some(group) = group {
        // SAFETY: all-zero is a valid value: no stack, no pointers.
        let mut arguments: libc::clone_args = unsafe { std::mem::zeroed() };
        arguments.flags = u64::from(flags) | CLONE_INTO_CGROUP;
        arguments.pidfd = (&raw mut pidfd) as u64;
        arguments.exit_signal = u64::from(libc::SIGCHLD.cast_unsigned());
        arguments.cgroup = u64::from(group.as_raw_fd().cast_unsigned());
        // SAFETY: as below; the size passed is that of the structure.
        check(unsafe {
            libc::syscall(libc::SYS_clone3, &raw const arguments, size_of::<libc::clone_args>())
        })?
    } else {
        let flags = libc::c_ulong::from(flags | libc::SIGCHLD.cast_unsigned());
        // SAFETY: a null stack makes the child a copy on its own copy of this stack, as fork does; `pidfd` outlives
        // the call; with one thread (the first argument proves it) the child may run any code.
        check(unsafe { libc::syscall(libc::SYS_clone, flags, 0usize, &raw mut pidfd, 0usize, 0usize) })?
    };
    match pid_of(pid)? {
        None => Ok((Forked::Child, None)),
        // SAFETY: the kernel has just put a new descriptor there, and nobody else knows it.
        Some(pid) => Ok((Forked::Parent(pid), Some(unsafe { OwnedFd::from_raw_fd(pidfd) }))),
    }
}

/// Forks; the child gets a UTS namespace of its own if asked.
pub(crate) fn fork(_: SingleThreaded, own_uts: bool) -> rustix::io::Result<Forked> {
    let uts = if own_uts { libc::CLONE_NEWUTS } else { 0 };
    let flags = libc::c_ulong::from((uts | libc::SIGCHLD).cast_unsigned());
    // SAFETY: as in `fork_into_namespaces`; no pointer is passed.
    let pid = check(unsafe { libc::syscall(libc::SYS_clone, flags, 0usize, 0usize, 0usize, 0usize) })?;
    Ok(pid_of(pid)?.map_or(Forked::Child, Forked::Parent))
}

/// Moves this process into new namespaces.
pub(crate) fn unshare(_: SingleThreaded, namespaces: UnshareFlags) -> rustix::io::Result<()> {
    // SAFETY: only `UnshareFlags::FILES` is dangerous, and only to other threads; there are none.
    unsafe { rustix::thread::unshare_unsafe(namespaces) }
}

/// `None` is the child's view, zero.
fn pid_of(raw: libc::c_long) -> rustix::io::Result<Option<Pid>> {
    let raw = i32::try_from(raw).map_err(|_| Errno::OVERFLOW)?;
    Ok(Pid::from_raw(raw))
}
