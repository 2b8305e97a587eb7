//! What a VM uses, and warnings before it may use no more.

use std::sync::atomic::{AtomicBool, Ordering};

use serde::{Deserialize, Serialize};

/// Body of the request `resource_usage`; its scope names the VM.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct ReadResourceUsage {}

/// Body of the response `resource_usage`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct ResourceUsage {
    /// One for each thing that is counted.
    pub resources: Vec<Resource>,
}

/// How much of one thing is used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Resource {
    /// What: `processes`, …; where a limit bounds it, that one's name.
    pub name: String,
    /// Now.
    pub used: u64,
    /// How much may be used; absent: unlimited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// Unit of the two: `bytes`, `processes`, …
    pub unit: String,
}

/// Body of the event `limit_warning`: the use of something has risen to 80 % of what it may be. Told once; again only
/// after the use has fallen below 70 %.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LimitWarning {
    /// The limit's name.
    pub limit: String,
    /// How much is used.
    pub observed: u64,
    /// How much may be.
    pub capacity: u64,
    /// The one as a part of the other.
    pub fill_percent: u32,
}

/// Tells when a limit is to be warned of: on the way up, once.
#[derive(Debug, Default)]
pub struct Edge {
    warned: AtomicBool,
}

impl Edge {
    /// How full something is when it is warned of.
    pub const WARN_PERCENT: u64 = 80;
    /// Below this it may be warned of again: what goes up and down around the one mark is told once.
    pub const REARM_PERCENT: u64 = 70;

    /// Takes note of the use; returns a warning if it has just become due.
    pub fn observe(&self, limit: &str, observed: u64, capacity: u64) -> Option<LimitWarning> {
        let percent = (u128::from(observed) * 100).checked_div(capacity.into()).unwrap_or(100);
        let fill_percent = u64::try_from(percent).unwrap_or(u64::MAX);
        if fill_percent < Self::REARM_PERCENT {
            self.warned.store(false, Ordering::Relaxed);
        }
        let due = fill_percent >= Self::WARN_PERCENT && !self.warned.swap(true, Ordering::Relaxed);
        due.then(|| LimitWarning {
            limit: limit.to_owned(),
            observed,
            capacity,
            fill_percent: u32::try_from(fill_percent).unwrap_or(u32::MAX),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_warned_of_once_on_each_way_up() {
        let edge = Edge::default();
        let mut warned = Vec::new();
        for observed in [0, 79, 80, 90, 100, 80, 70, 85, 69, 79, 85, 0, 100] {
            warned.extend(edge.observe("things", observed, 100).map(|warning| warning.fill_percent));
        }
        assert_eq!(warned, [80, 85, 100]);
        assert_eq!(Edge::default().observe("none", 0, 0).map(|warning| warning.fill_percent), Some(100));
        assert_eq!(
            Edge::default().observe("huge", u64::MAX, u64::MAX).map(|due| due.fill_percent),
            Some(100)
        );
    }
}
