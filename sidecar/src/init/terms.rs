//! What every guest process of a VM starts under.

use std::os::fd::OwnedFd;

use crate::isolation::cgroup;
use crate::isolation::niceness;
use crate::isolation::plan::Plan;

/// Settled when the VM boots.
#[derive(Debug)]
pub(super) struct Terms<'a> {
    pub plan: &'a Plan,
    /// Where it enters a group that init is not in.
    pub entrance: Option<OwnedFd>,
    pub niceness: i32,
}

impl Terms<'_> {
    /// Brings this process, a child that still runs our code, under what holds for it as a whole.
    pub(super) fn accept(&self) -> rustix::io::Result<()> {
        self.entrance.as_ref().map_or(Ok(()), cgroup::enter)?;
        niceness::become_guest(self.niceness)
    }
}
