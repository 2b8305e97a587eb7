//! The pipes behind a guest's standard input and output, pipe(7).

use std::{io, os::fd::OwnedFd};

use rustix::{
    fs::{Gid, OFlags, Uid},
    pipe::PipeFlags,
};
use tokio::io::{Interest, unix::AsyncFd};

use crate::sys;

/// Whom the guest's end belongs to, so that `/dev/stdout` opens in there; `None` where that is the sidecar's own user.
pub(crate) type Owner = Option<(u32, u32)>;

/// A pipe the guest writes: our reading end, and the guest's end.
pub(crate) fn output(owner: Owner) -> io::Result<(OwnedFd, OwnedFd)> {
    let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    give(&write, owner)?;
    do_not_wait(&read)?;
    Ok((read, write))
}

/// A pipe the guest reads: our writing end, and the guest's end.
pub(crate) fn input(owner: Owner) -> io::Result<(AsyncFd<OwnedFd>, OwnedFd)> {
    let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    give(&read, owner)?;
    do_not_wait(&write)?;
    Ok((sys::reactor::watch(write, Interest::WRITABLE)?, read))
}

fn give(end: &OwnedFd, owner: Owner) -> io::Result<()> {
    if let Some((uid, gid)) = owner {
        rustix::fs::fchown(end, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))?;
    }
    Ok(())
}

/// Only our end is non-blocking: the flag belongs to the open file description, and the guest's is another one.
fn do_not_wait(end: &OwnedFd) -> io::Result<()> {
    Ok(rustix::fs::fcntl_setfl(end, OFlags::NONBLOCK)?)
}
