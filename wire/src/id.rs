//! Ids: who chooses them and what they may look like.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Names a VM; chosen by the sidecar, unique for its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(extend("format" = "uuid")))]
#[serde(transparent)]
pub struct VmId(#[cfg_attr(feature = "schema", schemars(with = "String"))] pub uuid::Uuid);

impl VmId {
    /// A new random id.
    pub fn random() -> Self {
        Self(uuid::Uuid::new_v4())
    }
}

impl fmt::Display for VmId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Names a process within its VM: the synthetic pid. Chosen by the client, unique for the VM's life.
///
/// Spawned processes count from [`ProcessId::FIRST_SPAWNED`], those behind `exec` from [`ProcessId::FIRST_EXEC`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct ProcessId(pub u32);

impl ProcessId {
    /// The first pid of a spawned process; real pids stay below it.
    pub const FIRST_SPAWNED: u32 = 1_000_000;
    /// The first number of a process behind `exec`.
    pub const FIRST_EXEC: u32 = 1 << 31;

    /// Whether it stands behind an `exec`: no registry and no table shows it.
    pub const fn is_exec(self) -> bool {
        self.0 >= Self::FIRST_EXEC
    }
}

impl fmt::Display for ProcessId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Names a stream within its session. Chosen by the client, rising, never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct StreamId(pub u32);

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Names a request within its session; rising.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct RequestId(pub u64);
