//! What sidecar and zygote say to each other.
//!
//! Requests are [`Plan`](crate::isolation::plan::Plan)s, each with init's end of the new VM's socket. The answer comes
//! over that socket, so that a caller who has gone needs no attention: his end is closed, and init leaves.

use serde::{Deserialize, Serialize};

use crate::isolation::Fault;

/// The first message of a zygote.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Greeting {
    /// It takes requests.
    Ready,
    /// It cannot, and is about to exit.
    Failed(Fault),
}

/// The first message over a VM's socket, from the zygote.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Birth {
    /// Init exists; its pidfd comes along.
    Cloned {
        /// Its pid as the sidecar sees it.
        pid: i32,
    },
    /// It does not.
    Failed(Fault),
}
