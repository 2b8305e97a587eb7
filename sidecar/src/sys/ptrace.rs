//! `ptrace(2)` of processes that were seized, and waiting for them.
//!
//! A tracee belongs to the thread that seized it, or seized an ancestor: all of this is about the calling thread's own.

use std::mem::MaybeUninit;

use rustix::process::Pid;

use super::check;

/// What a tracee waits with, or how it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Change {
    /// Which thread.
    pub pid: Pid,
    /// How.
    pub kind: ChangeKind,
}

/// How a tracee changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChangeKind {
    /// It made another process or thread ([`message`] says which) and waits.
    Forked {
        /// Until that one has executed something or ended it has nothing else to do (`vfork(2)`).
        awaits: bool,
    },
    /// It executes another program, by this or another of its threads ([`message`] says which), and waits.
    Executed,
    /// It begins, or goes on after a stop, and waits.
    Begun,
    /// A signal stops its process.
    Stopped {
        /// Which.
        signal: i32,
    },
    /// It is to get a signal, and waits.
    Signal(i32),
    /// It called exit. Of a main thread: all others have ended.
    Exited {
        /// Low eight bits of what it passed.
        code: u8,
    },
    /// A signal ended it.
    Killed {
        /// Which.
        signal: i32,
    },
}

/// Takes a process under watch, with all its future threads and descendants. `kill`: they die with this thread.
pub(crate) fn seize(pid: Pid, kill: bool) -> rustix::io::Result<()> {
    let mut options = libc::PTRACE_O_TRACEFORK
        | libc::PTRACE_O_TRACEVFORK
        | libc::PTRACE_O_TRACECLONE
        | libc::PTRACE_O_TRACEEXEC;
    if kill {
        options |= libc::PTRACE_O_EXITKILL;
    }
    request(libc::PTRACE_SEIZE, pid, options.into())
}

/// Lets a waiting tracee go on, with `signal` delivered to it; 0: none.
pub(crate) fn go_on(pid: Pid, signal: i32) -> rustix::io::Result<()> {
    request(libc::PTRACE_CONT, pid, signal.into())
}

/// Leaves a tracee stopped until somebody continues it.
pub(crate) fn stay_stopped(pid: Pid) -> rustix::io::Result<()> {
    request(libc::PTRACE_LISTEN, pid, 0)
}

/// Which thread the event is about that a tracee waits with.
pub(crate) fn message(pid: Pid) -> rustix::io::Result<Option<Pid>> {
    let mut message: libc::c_ulong = 0;
    request(libc::PTRACE_GETEVENTMSG, pid, (&raw mut message) as libc::c_long)?;
    Ok(i32::try_from(message).ok().and_then(Pid::from_raw))
}

fn request(request: libc::c_uint, pid: Pid, data: libc::c_long) -> rustix::io::Result<()> {
    // SAFETY: the requests used here take plain numbers, or the address of a `c_ulong` that outlives the call.
    check(unsafe { libc::ptrace(request, pid.as_raw_nonzero().get(), 0usize, data) }).map(drop)
}

/// A change of any tracee, which stays to be taken: whose, and whether that is a stop. Waits for one, unless `now`; then
/// there may be none. ECHILD if there is no tracee.
pub(crate) fn next_change(now: bool) -> rustix::io::Result<Option<(Pid, bool)>> {
    let flags = libc::WNOWAIT | if now { libc::WNOHANG } else { 0 };
    let change = rustix::io::retry_on_intr(|| wait(libc::P_ALL, 0, flags))?;
    Ok(change.map(|(pid, code, _)| (pid, code == libc::CLD_TRAPPED)))
}

/// Takes the change of a tracee; `None` if there is none any more.
pub(crate) fn take_change(pid: Pid) -> rustix::io::Result<Option<Change>> {
    let id = pid.as_raw_nonzero().get().cast_unsigned();
    let Some((pid, code, status)) = wait(libc::P_PID, id, libc::WNOHANG)? else { return Ok(None) };
    let kind = match code {
        libc::CLD_EXITED => ChangeKind::Exited { code: status.to_le_bytes()[0] },
        libc::CLD_KILLED | libc::CLD_DUMPED => ChangeKind::Killed { signal: status },
        _ => stop(status),
    };
    Ok(Some(Change { pid, kind }))
}

/// What the status of a stop says: the signal, and above it the event.
fn stop(status: i32) -> ChangeKind {
    let signal = status & 0x7f;
    match status >> 8 {
        libc::PTRACE_EVENT_VFORK => ChangeKind::Forked { awaits: true },
        libc::PTRACE_EVENT_FORK | libc::PTRACE_EVENT_CLONE => ChangeKind::Forked { awaits: false },
        libc::PTRACE_EVENT_EXEC => ChangeKind::Executed,
        libc::PTRACE_EVENT_STOP if signal == libc::SIGTRAP => ChangeKind::Begun,
        libc::PTRACE_EVENT_STOP => ChangeKind::Stopped { signal },
        _ => ChangeKind::Signal(signal),
    }
}

/// pid, code and status of a change.
fn wait(kind: libc::idtype_t, id: libc::id_t, flags: i32) -> rustix::io::Result<Option<(Pid, i32, i32)>> {
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    let options = libc::WEXITED | libc::WSTOPPED | libc::__WALL | libc::__WNOTHREAD | flags;
    // SAFETY: the structure is writable and of the kernel's size.
    check(unsafe { libc::waitid(kind, id, info.as_mut_ptr(), options) }.into())?;
    // SAFETY: all-zero is a valid value, and the kernel filled in what it had to say: the fields of SIGCHLD.
    let (pid, code, status) = unsafe {
        let info = info.assume_init();
        (info.si_pid(), info.si_code, info.si_status())
    };
    Ok(Pid::from_raw(pid).map(|pid| (pid, code, status)))
}
