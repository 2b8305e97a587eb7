//! How long a thread computes before it is another's turn (`sched_setattr(2)`).

use rustix::io::Errno;

/// Has this thread, and those it makes, compute for short times, in nanoseconds: then it is soon its turn, and not interrupted by
/// whom it wakes. Without effect before Linux 6.12.
pub(crate) fn compute_shortly(nanoseconds: u64) -> rustix::io::Result<()> {
    let niceness = rustix::process::getpriority_process(None)?;
    let attributes = libc::sched_attr {
        size: u32::try_from(size_of::<libc::sched_attr>()).map_err(|_| Errno::INVAL)?,
        sched_policy: libc::SCHED_OTHER.cast_unsigned(),
        sched_flags: 0,
        sched_nice: niceness,
        sched_priority: 0,
        sched_runtime: nanoseconds,
        sched_deadline: 0,
        sched_period: 0,
    };
    // SAFETY: the structure has the size that it names, and is only read.
    super::check(unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) }).map(drop)
}
