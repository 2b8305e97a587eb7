//! Descriptors that tokio watches.

use std::os::fd::{AsFd, OwnedFd};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Lets the current runtime watch a descriptor, which should be non-blocking or used with calls that do not wait.
pub(crate) fn watch(descriptor: OwnedFd, interest: Interest) -> std::io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` stays open, keeps its number and cannot be exchanged while the `AsyncFd` owns it: only shared
    // references to it are handed out.
    Ok(unsafe { AsyncFd::register_with_interest(descriptor, interest) }?)
}

/// Waits until a socket has room. It is watched for that only now: a socket that always is announces, again and again, that
/// the other end has read something.
///
/// Cancel safety: safe.
pub(crate) async fn room(socket: impl AsFd) -> std::io::Result<()> {
    let watched = watch(rustix::io::fcntl_dupfd_cloexec(socket, 3)?, Interest::WRITABLE)?;
    watched.writable().await.map(drop)
}
