//! Control groups (`cgroups(7)`): the processor time, processes and memory of a whole VM.
//!
//! ```text
//!  the group this process is in, or the nearest one above it in which groups can be made
//!  └── agentvm-ID         one sidecar's; locked while that lives
//!      └── vm-ID          one VM's: carries its limits
//!          ├── main       version 2 only, where a group with limits for others has no processes itself
//!          └── exec-N     a started process with a memory limit of its own, and its descendants
//! ```
//!
//! Init itself is in its VM's groups, so that everything in the VM is born in them: moving a process costs a grace
//! period of the kernel (4 to 15 ms), unless it is a thread that moves itself (version 1, `tasks`) or is cloned into its
//! group (version 2). Only the memory group of version 1 is entered by each guest process alone. Init stays able to act:
//! no guest comes before it, the guest's limit of processes leaves it some, and the kernel ends guests first when memory
//! is short.
//!
//! What cannot be had is known with its reason, and refused where it is asked for.

mod entry;
mod folder;
mod group;
mod place;
mod sidecar;
mod version;

pub(crate) use entry::{Entry, EntryKinds, enter};
pub(crate) use group::{ExecGroup, Group};
pub(crate) use sidecar::Cgroups;

/// What a group can count and limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Controller {
    Cpu,
    Memory,
    Pids,
}

impl Controller {
    const ALL: [Self; 3] = [Self::Cpu, Self::Memory, Self::Pids];

    /// As the kernel calls it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Memory => "memory",
            Self::Pids => "pids",
        }
    }
}

/// What one VM may use in all; `None` is no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GroupLimits {
    /// Processes and threads, beside those of init.
    pub pids: u64,
    /// Bytes of memory, files in the VM's own file system included.
    pub memory_bytes: Option<u64>,
    /// Thousandths of a processor.
    pub cpu_millicores: Option<u64>,
}
