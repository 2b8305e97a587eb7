//! What is to be observed.

use agentvm_wire::observer::{EventCategory, MAX_EVENTS, TraceScope};

use crate::error::ClientError;

/// What is to be observed: nothing, unless categories are named.
///
/// ```
/// use agentvm_sdk::{EventCategory, ObserverConfig};
///
/// let config = ObserverConfig::with_categories([EventCategory::Process, EventCategory::Lifecycle]);
/// assert!(config.observes(EventCategory::Process) && !config.observes(EventCategory::File));
/// assert_eq!(config.categories(), [EventCategory::Lifecycle, EventCategory::Process]);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ObserverConfig {
    categories: Vec<EventCategory>,
    pub(crate) scope: TraceScope,
    pub(super) require_exact: bool,
    pub(crate) buffered_events: usize,
}

impl ObserverConfig {
    /// Start and end of the processes that are started through the API.
    pub fn lifecycle() -> Self {
        Self::with_categories([EventCategory::Lifecycle])
    }

    /// These categories.
    pub fn with_categories(categories: impl IntoIterator<Item = EventCategory>) -> Self {
        let mut categories: Vec<_> = categories.into_iter().collect();
        categories.sort_unstable();
        categories.dedup();
        Self { categories, ..Self::default() }
    }

    /// Start, programs and end of every process of the sidecar's host: see
    /// [`AgentOs::observe`](crate::AgentOs::observe).
    pub fn system_wide() -> Self {
        Self::with_categories([EventCategory::Process]).scope(TraceScope::SystemWide)
    }

    /// How far to look; a VM or a process with its descendants if not set.
    #[must_use]
    pub fn scope(mut self, scope: TraceScope) -> Self {
        self.scope = scope;
        self
    }

    /// Whether a category is among them.
    pub fn observes(&self, category: EventCategory) -> bool {
        self.categories.contains(&category)
    }

    /// All of them, in the order of [`EventCategory::ALL`].
    pub fn categories(&self) -> &[EventCategory] {
        &self.categories
    }

    /// Refuses what one process cannot be observed with.
    pub(crate) fn check_for_process(&self) -> Result<(), ClientError> {
        if self.scope == TraceScope::LaunchedProcessTree {
            return Ok(());
        }
        let why = "one process is observed with its descendants; the whole host by AgentOs::observe";
        Err(ClientError::invalid("observe.scope", why))
    }

    /// Refuse to start, or to observe, where a category cannot be seen exactly; false if not set: then the program runs,
    /// what can be seen is told, and a `loss` says what cannot.
    #[must_use]
    pub fn require_exact(mut self, require_exact: bool) -> Self {
        self.require_exact = require_exact;
        self
    }

    /// How many events are kept for readers, at least 1 and at most 65 536, which it is if not set; 64 MiB of them at most.
    /// The oldest go first; a reader that has not read them finds a `loss` with their count.
    #[must_use]
    pub fn buffered_events(mut self, events: usize) -> Self {
        self.buffered_events = events.clamp(1, MAX_EVENTS);
        self
    }
}

/// Nothing.
impl Default for ObserverConfig {
    fn default() -> Self {
        Self {
            categories: Vec::new(),
            scope: TraceScope::default(),
            require_exact: false,
            buffered_events: MAX_EVENTS,
        }
    }
}
