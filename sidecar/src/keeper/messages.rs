//! What a keeper and the sidecar say to each other, over a socket of packets.

use agentvm_wire::id::ProcessId;
use serde::{Deserialize, Serialize};

use super::sighting::{Running, Sighting};

/// Bytes that the sightings of one message take, about: one that is as long as can be fits, too.
pub(super) const MAX_BATCH_BYTES: usize = 12 << 10;

/// From the sidecar to a keeper, after the [`Orders`](super::Orders).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Request {
    /// A process will start, and say so over the socket that comes along.
    Expect {
        /// Its name.
        tree: ProcessId,
    },
    /// A tree runs already.
    Adopt {
        /// Its name.
        tree: ProcessId,
        /// Where it is.
        running: Running,
    },
    /// Does it still listen?
    Ping,
}

/// From a keeper to the sidecar.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Told {
    /// It takes requests.
    Ready,
    /// What it saw, in order.
    Sightings(Vec<Sighting>),
    /// A seccomp listener comes along, to be answered once the keeper is gone.
    Listener,
    /// It does.
    Pong,
}
