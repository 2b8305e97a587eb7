//! The plan of one VM: what the sidecar asks the zygote and init to build, every default already filled in.

use agentvm_wire::vm::Isolation;
use serde::{Deserialize, Serialize};

use super::cgroup::EntryKinds;
use super::fault::Step;
use super::identity::{Guest, IdMaps};
use super::private_folder::PrivateFolder;

/// Everything init needs to know; small enough for one message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Plan {
    /// How strongly the VM is separated from the host.
    pub isolation: Isolation,
    /// Without a root of its own: the folder of the host that is its alone.
    pub folder: Option<PrivateFolder>,
    /// Host name inside.
    pub hostname: String,
    /// Working directory to make if it is missing.
    pub cwd: String,
    /// Who guest processes run as.
    pub guest: Guest,
    /// How ids inside relate to ids outside.
    pub id_maps: IdMaps,
    /// Bytes of the root tmpfs.
    pub size_bytes: u64,
    /// Inodes of the root tmpfs.
    pub inodes: u64,
    /// What each guest process is limited to.
    pub limits: GuestLimits,
    /// Which of its groups come along, as descriptors.
    pub entry: EntryKinds,
    /// It has a share of the processor for itself.
    pub own_share: bool,
    /// Test builds: the step that shall fail, and how.
    pub failing: Option<(Step, i32)>,
}

impl Plan {
    /// Whether guest processes and init have the same uid, so that the kernel alone would let a guest change init's
    /// limits and priorities.
    pub(crate) fn shares_uid(&self) -> bool {
        self.id_maps.are_shared(self.guest)
    }

    /// The uid and gid of guest processes, as they see it.
    pub(crate) fn guest_id(&self) -> u32 {
        self.id_maps.guest_id(self.guest)
    }

    /// Home directory of guest processes, as they see it.
    pub(crate) fn home(&self) -> String {
        self.folder.as_ref().map_or_else(|| self.guest.home().to_owned(), PrivateFolder::home)
    }

    /// Fails in tests where the plan says so.
    pub(crate) fn reach(&self, step: Step) -> Result<(), super::Fault> {
        match self.failing {
            Some((failing, errno)) if failing == step => Err(super::Fault { step, errno, path: None }),
            _ => Ok(()),
        }
    }
}

/// What each guest process is limited to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct GuestLimits {
    /// `RLIMIT_NPROC`: processes and threads of its uid in this VM; absent where that is also the uid of others.
    pub pids: Option<u64>,
    /// `RLIMIT_NOFILE`.
    pub open_files: u64,
    /// `RLIMIT_FSIZE` in bytes.
    pub file_size: Option<u64>,
    /// `RLIMIT_CORE` in bytes; without it no core is written.
    pub core: Option<u64>,
}
