//! What can be observed on this host, and how exactly.

use agentvm_wire::{
    error::{Code, Rejection},
    observer::{
        CategoryCapability, EventCategory, Observe, ObserverBackend, ObserverCapabilities, TraceScope,
    },
};

/// Why nothing but what the sidecar does itself is seen.
const NO_KEEPER: &str = "this sidecar has nothing that looks at other processes";
/// What it would take to see a whole host.
const NOT_SYSTEM_WIDE: &str = "this sidecar looks at nothing but its own VMs";

/// What can be observed within a scope.
pub(crate) fn negotiate_for_scope(scope: TraceScope) -> ObserverCapabilities {
    let cell = |category: &EventCategory| match (scope, *category) {
        (TraceScope::LaunchedProcessTree, EventCategory::Lifecycle) => {
            CategoryCapability::supported(EventCategory::Lifecycle, ObserverBackend::Spawn)
        }
        (TraceScope::LaunchedProcessTree, category) => CategoryCapability::unavailable(category, NO_KEEPER),
        (_, category) => CategoryCapability::unavailable(category, NOT_SYSTEM_WIDE),
    };
    ObserverCapabilities { scope, categories: EventCategory::ALL.iter().map(cell).collect() }
}

/// What can be observed of VMs and their processes.
pub(crate) fn negotiate() -> ObserverCapabilities {
    negotiate_for_scope(TraceScope::LaunchedProcessTree)
}

/// Refuses what would have gaps, where that was asked.
pub(crate) fn check(observe: &Observe) -> Result<(), Rejection> {
    observe.validate()?;
    if !observe.require_exact {
        return Ok(());
    }
    let capabilities = negotiate();
    let inexact = observe.categories.iter().find(|category| !capabilities.is_supported(**category));
    let Some(category) = inexact else { return Ok(()) };
    let support = capabilities.support(*category);
    let reason = capabilities.category(*category).map_or("", |cell| &cell.reason);
    let mut rejection =
        Rejection::new(Code::UNSUPPORTED, format!("{category} is not seen exactly: {support}, {reason}"));
    rejection.details.field = Some("observe.categories".to_owned());
    Err(rejection)
}
