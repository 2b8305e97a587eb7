//! Signal masks, dispositions and `signalfd(2)`.

use std::mem::MaybeUninit;
use std::os::fd::{FromRawFd as _, OwnedFd};
use std::ptr;

use rustix::process::Signal;

use super::check;

/// The highest signal number (`signal(7)`).
const LAST_SIGNAL: i32 = 64;

/// The signal with a number, if programs may use it: not one of the C library's own two.
pub(crate) fn signal(number: i32) -> Option<Signal> {
    agentvm_wire::process::Signal::from_number(number)?;
    // SAFETY: it is a valid number, and none that the C library keeps for itself.
    Some(unsafe { Signal::from_raw_unchecked(number) })
}

/// Sends a signal to every process of this pid namespace but the caller and its init.
pub(crate) fn signal_everybody(signal: Signal) {
    // SAFETY: `kill` only takes two plain numbers; it fails if there is nobody.
    unsafe { libc::kill(-1, signal.as_raw()) };
}

/// Gives every signal its default effect; what cannot be changed (SIGKILL, SIGSTOP, libc's own two) stays.
pub(crate) fn reset_dispositions() {
    (1..=LAST_SIGNAL).for_each(restore);
}

/// Gives one signal its default effect.
pub(crate) fn restore(signal: i32) {
    set_disposition(signal, libc::SIG_DFL);
}

/// Ignores a signal. Ignoring SIGCHLD also means that children vanish by themselves (`wait(2)`, notes).
pub(crate) fn ignore(signal: i32) {
    set_disposition(signal, libc::SIG_IGN);
}

fn set_disposition(signal: i32, handler: libc::sighandler_t) {
    // SAFETY: neither SIG_DFL nor SIG_IGN runs any code of ours; a signal that cannot be set is left alone.
    unsafe { libc::signal(signal, handler) };
}

/// Blocks SIGCHLD, and returns a non-blocking descriptor that is readable while one is pending.
pub(crate) fn child_changes() -> rustix::io::Result<OwnedFd> {
    let mut set = empty_set();
    // SAFETY: the set is initialised, and SIGCHLD is a valid signal.
    unsafe { libc::sigaddset(&raw mut set, libc::SIGCHLD) };
    set_mask(&set)?;
    // SAFETY: the set is initialised; a new descriptor is made, which nobody else knows.
    unsafe {
        let descriptor =
            check(libc::signalfd(-1, &raw const set, libc::SFD_NONBLOCK | libc::SFD_CLOEXEC).into())?;
        Ok(OwnedFd::from_raw_fd(i32::try_from(descriptor).expect("a descriptor is an int")))
    }
}

/// Lets every signal through.
pub(crate) fn unblock_all() -> rustix::io::Result<()> {
    set_mask(&empty_set())
}

fn set_mask(set: &libc::sigset_t) -> rustix::io::Result<()> {
    // SAFETY: the set is initialised, and the old one is not asked for.
    check(unsafe { libc::sigprocmask(libc::SIG_SETMASK, set, ptr::null_mut()) }.into()).map(drop)
}

fn empty_set() -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: `sigemptyset` initialises the whole set and cannot fail on a valid pointer.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        set.assume_init()
    }
}
