//! What the clients of a sidecar may ask for: those who launched it, whatever its own user may do; others, what its
//! operator allows.

use agentvm_wire::{
    error::{Code, Rejection},
    vm::{Isolation, VmConfig},
};

/// The default allows sandboxes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    isolation: Vec<Isolation>,
}

impl Default for Policy {
    fn default() -> Self {
        Self::allowing([Isolation::Sandbox])
    }
}

impl Policy {
    /// VMs of these levels.
    pub fn allowing(isolation: impl IntoIterator<Item = Isolation>) -> Self {
        Self { isolation: isolation.into_iter().collect() }
    }

    pub(crate) fn everything() -> Self {
        Self::allowing([Isolation::Sandbox, Isolation::Confined, Isolation::None])
    }

    pub(crate) fn is_sandbox_only(&self) -> bool {
        self.isolation == [Isolation::Sandbox]
    }

    /// Refuses what is not allowed.
    pub(crate) fn check(&self, config: &VmConfig) -> Result<(), Rejection> {
        if self.isolation.contains(&config.isolation) {
            return Ok(());
        }
        let message = "this sidecar does not allow this level of isolation: see its option --isolation";
        let mut rejection = Rejection::invalid("isolation", message);
        rejection.code = Code::PERMISSION_DENIED;
        Err(rejection)
    }
}
