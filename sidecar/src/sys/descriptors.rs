//! Descriptors by number: what a new process closes, and where its standard streams go.

use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};

use rustix::io::Errno;

use super::check;

/// Closes every descriptor from `first` to `last`, both included (`close_range(2)`).
///
/// Only for a process that owns none of them in a live value any more: zygote, init and their children call it with
/// everything they still use kept out of the range.
pub(crate) fn close_range(first: u32, last: u32) -> rustix::io::Result<()> {
    // SAFETY: closing is memory safe; the caller keeps the descriptors of its live values out of the range.
    check(unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) }).map(drop)
}

/// Closes everything from 3 on except `kept`.
pub(crate) fn close_all_but<const N: usize>(mut kept: [RawFd; N]) -> rustix::io::Result<()> {
    kept.sort_unstable();
    let mut first = 3;
    for kept in kept {
        let kept = u32::try_from(kept).map_err(|_| Errno::BADF)?;
        if first < kept {
            close_range(first, kept - 1)?;
        }
        first = first.max(kept + 1);
    }
    close_range(first, u32::MAX)
}

/// Makes descriptor `number` (0, 1 or 2) another name of `source`, open across exec.
pub(crate) fn put_at(source: impl AsFd, number: RawFd) -> rustix::io::Result<()> {
    // SAFETY: the value is never dropped, so it closes nothing; `dup2` replaces whatever is open there, and nobody in
    // this crate owns the standard streams.
    let mut target = ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(number) });
    rustix::io::dup2(source, &mut target)
}

/// Borrows the descriptor this process was executed with as its standard input.
pub(crate) fn standard_input() -> BorrowedFd<'static> {
    // SAFETY: nobody in this crate ever closes descriptor 0; at worst it names no open file and calls fail with EBADF.
    unsafe { BorrowedFd::borrow_raw(0) }
}

/// Borrows what this process has as its standard output.
pub(crate) fn standard_output() -> BorrowedFd<'static> {
    // SAFETY: as for standard input.
    unsafe { BorrowedFd::borrow_raw(1) }
}
