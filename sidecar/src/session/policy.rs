//! What the clients of a sidecar may ask for: those who launched it, whatever its own user may do; others, what its
//! operator allows.

use agentvm_wire::{
    error::{Code, Rejection},
    observer::TraceScope,
    vm::{Isolation, VmConfig},
};

/// The default allows sandboxes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    isolation: Vec<Isolation>,
    system_wide: bool,
}

impl Default for Policy {
    fn default() -> Self {
        Self::allowing([Isolation::Sandbox])
    }
}

impl Policy {
    /// VMs of these levels.
    pub fn allowing(isolation: impl IntoIterator<Item = Isolation>) -> Self {
        Self { isolation: isolation.into_iter().collect(), system_wide: false }
    }

    /// Whether clients may observe every process of the host, what it executes with its arguments included; not, unless
    /// this is said.
    #[must_use]
    pub fn system_wide(mut self, system_wide: bool) -> Self {
        self.system_wide = system_wide;
        self
    }

    pub(crate) fn everything() -> Self {
        Self::allowing([Isolation::Sandbox, Isolation::Confined, Isolation::None]).system_wide(true)
    }

    /// Whether clients may observe so far.
    pub(crate) fn allows(&self, scope: TraceScope) -> bool {
        self.system_wide || scope == TraceScope::LaunchedProcessTree
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
