//! Descriptors that tokio watches.

use std::os::fd::OwnedFd;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Lets the current runtime watch a descriptor, which should be non-blocking or used with calls that do not wait.
pub(crate) fn watch(descriptor: OwnedFd, interest: Interest) -> std::io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` stays open, keeps its number and cannot be exchanged while the `AsyncFd` owns it: only shared
    // references to it are handed out.
    Ok(unsafe { AsyncFd::register_with_interest(descriptor, interest) }?)
}
