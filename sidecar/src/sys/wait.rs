//! `waitid(2)` with the resource usage that only the raw call gives, and letting go of a traced child.

use std::mem::MaybeUninit;

use rustix::io::Errno;
use rustix::process::Pid;

use super::check;

/// A child changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Change {
    /// Which child.
    pub pid: Pid,
    /// How.
    pub kind: ChangeKind,
}

/// How a child changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChangeKind {
    /// It called exit, and is reaped.
    Exited {
        /// Low eight bits of what it passed.
        code: u8,
        /// What it used.
        usage: Usage,
    },
    /// A signal ended it, and it is reaped.
    Killed {
        /// Which signal.
        signal: i32,
        /// Whether a core was dumped.
        core_dumped: bool,
        /// What it used.
        usage: Usage,
    },
    /// A signal stopped it.
    Stopped,
    /// It made this process its tracer and waits for it to say how to go on.
    Trapped {
        /// The signal it waits with.
        signal: i32,
    },
    /// Anything else, e.g. continued.
    Other,
}

/// What a child and those it waited for used (`getrusage(2)`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Usage {
    /// Microseconds in user mode.
    pub user_us: u64,
    /// Microseconds in the kernel.
    pub system_us: u64,
    /// Largest resident set in bytes.
    pub max_rss_bytes: u64,
}

/// The next change of any child; `None` if nothing has changed or there is no child.
pub(crate) fn next_change() -> rustix::io::Result<Option<Change>> {
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    let options = libc::WEXITED | libc::WSTOPPED | libc::WNOHANG;
    // SAFETY: both structures are writable and of the kernel's size.
    let result = check(unsafe {
        libc::syscall(libc::SYS_waitid, libc::P_ALL, 0, info.as_mut_ptr(), options, usage.as_mut_ptr())
    });
    match result {
        Ok(_) => {}
        Err(Errno::CHILD) => return Ok(None),
        Err(errno) => return Err(errno),
    }
    // SAFETY: all-zero is a valid value of both, and the kernel filled what it had to say; the pid and status fields
    // are those of SIGCHLD, which is the only kind `waitid` writes.
    let (pid, code, status, usage) = unsafe {
        let info = info.assume_init();
        (info.si_pid(), info.si_code, info.si_status(), usage.assume_init())
    };
    let Some(pid) = Pid::from_raw(pid) else { return Ok(None) };
    let usage = Usage {
        user_us: microseconds(usage.ru_utime),
        system_us: microseconds(usage.ru_stime),
        max_rss_bytes: u64::try_from(usage.ru_maxrss).unwrap_or(0) * 1024,
    };
    Ok(Some(Change { pid, kind: kind(code, status, usage) }))
}

/// What `si_code` and `si_status` say.
pub(crate) fn kind(code: i32, status: i32, usage: Usage) -> ChangeKind {
    match code {
        libc::CLD_EXITED => ChangeKind::Exited { code: status.to_le_bytes()[0], usage },
        libc::CLD_KILLED => ChangeKind::Killed { signal: status, core_dumped: false, usage },
        libc::CLD_DUMPED => ChangeKind::Killed { signal: status, core_dumped: true, usage },
        libc::CLD_STOPPED => ChangeKind::Stopped,
        libc::CLD_TRAPPED => ChangeKind::Trapped { signal: status & 0x7f },
        _ => ChangeKind::Other,
    }
}

/// Lets a trapped child go on untraced, with `signal` (0: none) delivered to it.
pub(crate) fn detach(pid: Pid, signal: i32) {
    // SAFETY: PTRACE_DETACH takes two plain numbers here; it fails harmlessly if the child is gone.
    unsafe {
        libc::ptrace(libc::PTRACE_DETACH, pid.as_raw_nonzero().get(), 0usize, libc::c_long::from(signal));
    }
}

/// Bytes that all descendants that were waited for had fetched from storage, and had to be stored (`getrusage(2)`).
pub(crate) fn reaped_io() -> [u64; 2] {
    /// What the kernel counts blocks in, whatever those of the device are.
    const BLOCK_BYTES: u64 = 512;
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the structure is writable and of the kernel's size; all-zero is a valid value of it.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_CHILDREN, usage.as_mut_ptr());
        usage.assume_init()
    };
    [usage.ru_inblock, usage.ru_oublock].map(|blocks| u64::try_from(blocks).unwrap_or(0) * BLOCK_BYTES)
}

fn microseconds(time: libc::timeval) -> u64 {
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000 + u64::try_from(time.tv_usec).unwrap_or(0)
}
