//! Observation: what happens inside a VM or a process tree, event by event, and how exactly this host can see it.
//!
//! A client opens a stream for it, with `execute` or with `observe`. The stream carries JSON lines, each one
//! [`ObserverEvent`].

mod capabilities;
mod event;
mod kind;
mod request;

use std::fmt;

use serde::{Deserialize, Serialize};

pub use capabilities::{CategoryCapability, ObserverCapabilities};
pub use event::{ObserverEvent, ProcessKey};
pub use kind::{AddressFamily, NetworkAddress, ObserverEventKind};
pub use request::{Observe, ObserveVm, Observing, ReadObserverCapabilities, Told};

/// Events that wait for a reader, at most; the oldest go first, and are counted.
pub const MAX_EVENTS: usize = 64 << 10;
/// Memory that waiting events may take, 64 MiB: only very long paths and arguments meet it before [`MAX_EVENTS`].
pub const MAX_EVENTS_BYTES: usize = 64 << 20;

/// Declares a choice by its stable names.
macro_rules! choice {
    ($(#[$doc:meta])* $choice:ident { $($(#[$variant_doc:meta])* $variant:ident = $name:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        #[non_exhaustive]
        pub enum $choice {
            $($(#[$variant_doc])* #[serde(rename = $name)] $variant,)*
        }

        impl $choice {
            /// Every one, in fixed order.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// Its stable name.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }
        }

        impl fmt::Display for $choice {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.as_str())
            }
        }
    };
}
use choice;

impl Default for TraceScope {
    /// What takes no rights.
    fn default() -> Self {
        Self::LaunchedProcessTree
    }
}

choice! {
    /// How far an observation looks.
    TraceScope {
        /// What a VM, or one process with its descendants, does; needs no rights.
        LaunchedProcessTree = "launched-process-tree",
        /// Every process of the host; needs rights.
        SystemWide = "system-wide",
    }
}

choice! {
    /// What is observed.
    EventCategory {
        /// Start and end of the processes that were started through the API.
        Lifecycle = "lifecycle",
        /// Files opened, removed, renamed.
        File = "file",
        /// Connections and addresses.
        Network = "network",
        /// Start, programs and end of every descendant.
        Process = "process",
    }
}

choice! {
    /// How well a category can be observed.
    CapabilitySupport {
        /// Exactly: probed on this host.
        Supported = "supported",
        /// With gaps, each named.
        Partial = "partial",
        /// Not at all.
        Unavailable = "unavailable",
    }
}

choice! {
    /// By what means something was seen.
    ObserverBackend {
        /// The sidecar started it and reaped it.
        Spawn = "spawn",
        /// `ptrace(2)`.
        Ptrace = "ptrace",
        /// `seccomp_unotify(2)`.
        Notification = "notification",
        /// `/proc`, looked at again and again.
        Polling = "polling",
        /// The kernel's process connector, over `netlink(7)`.
        Connector = "cn_proc",
    }
}

#[cfg(test)]
mod tests;
