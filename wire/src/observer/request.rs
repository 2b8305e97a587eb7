//! What a client asks of an observer, and what it is answered.

use serde::{Deserialize, Serialize};

use super::{EventCategory, TraceScope};
use crate::{error::Rejection, id::StreamId};

/// What is to be observed, and where it is told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Observe {
    /// Carries the events; sidecar to client.
    pub stream: StreamId,
    /// At least one.
    pub categories: Vec<EventCategory>,
    /// Refuse rather than observe with gaps.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub require_exact: bool,
}

impl Observe {
    /// Refuses an observation of nothing.
    pub fn validate(&self) -> Result<(), Rejection> {
        if self.categories.is_empty() {
            return Err(Rejection::invalid("observe.categories", "nothing is to be observed"));
        }
        Ok(())
    }
}

/// Body of `observe`: a whole VM, which its scope names, or through it the whole host; from now on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ObserveVm {
    /// What, and where it is told.
    pub observe: Observe,
    /// How far it looks; if absent: the VM.
    #[serde(default, skip_serializing_if = "is_default")]
    pub reach: TraceScope,
    /// The stream's window; that of the session's limits if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window_bytes: Option<u64>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_default(reach: &TraceScope) -> bool {
    *reach == TraceScope::default()
}

/// Body of `observing`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Observing {}

/// Body of the request `observer_capabilities`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReadObserverCapabilities {
    /// How far an observation would look.
    pub scope: TraceScope,
}

/// How far an observation tells of a process's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Told {
    /// The observation's stream.
    pub stream: StreamId,
    /// The number of the event.
    pub seq: u64,
}
