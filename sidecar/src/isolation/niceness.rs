//! Who comes first (`sched(7)`): in a VM that has a share of the processor for itself, init does before its guests, so that
//! it answers however much they compute. Outside of that share the niceness of the VM's processes means nothing.

use rustix::process::{getpriority_process, setpriority_process};

/// The lowest and the highest niceness.
const FIRST: i32 = -20;
const LAST: i32 = 19;

/// The niceness of the sidecar, and whether the zygote could leave it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Niceness {
    sidecar: i32,
    lowered: bool,
}

impl Niceness {
    /// Lets this process, the zygote, and the inits it clones come first; an ordinary user may not.
    pub(crate) fn lower() -> Self {
        let sidecar = getpriority_process(None).unwrap_or(0);
        Self { sidecar, lowered: setpriority_process(None, FIRST).is_ok() }
    }

    /// Settles init, and returns what its guests get.
    pub(crate) fn settle(self, own_share: bool) -> rustix::io::Result<i32> {
        if own_share {
            return Ok(if self.lowered { self.sidecar } else { LAST });
        }
        setpriority_process(None, self.sidecar)?;
        Ok(self.sidecar)
    }
}

/// Gives this process the niceness of a guest; never a lower one than it has.
pub(crate) fn become_guest(niceness: i32) -> rustix::io::Result<()> {
    setpriority_process(None, niceness)
}
