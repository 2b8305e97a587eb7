//! How the processes of a VM come into its groups: descriptors that the sidecar opens and passes to the zygote with the
//! plan, because neither zygote nor init sees the groups themselves.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use serde::{Deserialize, Serialize};

/// Open groups.
#[derive(Debug, Default)]
pub(crate) struct Entry {
    /// Init is cloned into this group.
    pub born: Option<OwnedFd>,
    /// Each guest process enters by this one.
    pub guest: Option<OwnedFd>,
    /// Init enters by these.
    pub boot: Vec<OwnedFd>,
}

/// Which of them there are; told with the plan.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct EntryKinds {
    pub born: bool,
    pub guest: bool,
}

impl Entry {
    pub(crate) fn kinds(&self) -> EntryKinds {
        EntryKinds { born: self.born.is_some(), guest: self.guest.is_some() }
    }

    /// All descriptors, in the order in which they are passed on.
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.born.iter().chain(&self.guest).chain(&self.boot).map(AsFd::as_fd)
    }

    /// Names them again at the other end.
    pub(crate) fn from_descriptors(
        kinds: EntryKinds,
        mut descriptors: impl Iterator<Item = OwnedFd>,
    ) -> Self {
        let born = if kinds.born { descriptors.next() } else { None };
        let guest = if kinds.guest { descriptors.next() } else { None };
        Self { born, guest, boot: descriptors.collect() }
    }
}

/// Moves this process, which has one thread, into the group behind an entrance.
pub(crate) fn enter(entrance: impl AsFd) -> rustix::io::Result<()> {
    rustix::io::write(entrance, b"0").map(drop)
}
