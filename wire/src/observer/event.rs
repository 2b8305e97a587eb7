//! One event.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{EventCategory, ObserverBackend, ObserverEventKind};

/// Something that happened, as one line of an observation's stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct ObserverEvent {
    /// Rises by one from 1 on; only behind a loss by overflow it goes on as many numbers later as events were lost.
    pub seq: u64,
    /// What it belongs to.
    pub category: EventCategory,
    /// What happened.
    pub kind: ObserverEventKind,
    /// To whom: the id given to `execute`, or a descendant's pid inside the VM; absent where it is about no process, and
    /// of one that was over before anybody could look.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// The same process, for ever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<ProcessKey>,
    /// Who made it, as far as that is observed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_key: Option<ProcessKey>,
    /// Wall clock, epoch milliseconds.
    pub timestamp_ms: u64,
    /// The kernel's monotonic clock, nanoseconds.
    #[serde(with = "decimal")]
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub mono_ns: u64,
    /// By what means it was seen.
    pub backend: ObserverBackend,
    /// It was tried; whether it succeeded is not known.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub attempt: bool,
    /// Why what was tried has failed, an errno's number; absent where it succeeded, and where that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub errno: Option<i32>,
}

impl ObserverEvent {
    /// An event about no process, by the sidecar itself, at no time yet.
    pub fn new(category: EventCategory, kind: ObserverEventKind) -> Self {
        Self {
            seq: 0,
            category,
            kind,
            pid: None,
            key: None,
            parent_key: None,
            timestamp_ms: 0,
            mono_ns: 0,
            backend: ObserverBackend::Spawn,
            attempt: false,
            errno: None,
        }
    }

    /// Writes its line, with the end of it.
    pub fn write_line(&self, to: &mut impl std::io::Write) -> std::io::Result<()> {
        serde_json::to_writer(&mut *to, self)?;
        to.write_all(b"\n")
    }

    /// Reads a line; `None` if it is none, or tells of something that this version does not know.
    pub fn read_line(line: &[u8]) -> Option<Self> {
        serde_json::from_slice(line).ok()
    }

    /// How many numbers it takes on its stream: the next event has that much more than this one's `seq`. A loss takes one
    /// for each event that it stands for, and `unsent` ones one for itself.
    pub fn numbers(&self) -> u64 {
        match &self.kind {
            ObserverEventKind::Loss { reason, count } if reason == ObserverEventKind::OVERFLOW => *count,
            ObserverEventKind::Loss { reason, count } if reason == ObserverEventKind::UNSENT => {
                count.saturating_add(1)
            }
            _ => 1,
        }
    }

    /// Memory it takes, about.
    pub fn size_bytes(&self) -> usize {
        size_of::<Self>() + self.kind.text_bytes()
    }
}

/// Names a process for ever: a pid that is used again comes with another start. Executing another program keeps it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProcessKey {
    /// The pid inside the VM.
    pub pid: u32,
    /// When it began, in clock ticks since the host's boot: `starttime` of `proc_pid_stat(5)`.
    pub start_ticks: u64,
}

impl fmt::Display for ProcessKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.pid, self.start_ticks)
    }
}

/// A number that may exceed 2^53: a decimal string on the wire.
mod decimal {
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
    pub(super) fn serialize<S: Serializer>(number: &u64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(number)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(D::Error::custom)
    }
}
