//! The processes of the whole host, told by the kernel's process connector (`cn_proc`).
//!
//! ```text
//!   kernel ─ netlink ─► Connector ─► Census: who is who ─► HostEvents, one for each observation ─► its Feed
//!                       └──────── the reader's thread ───────┘
//! ```
//!
//! There is one reader for all who observe, from the first of them to the last: without one there is no thread, and no
//! socket. The kernel makes nobody wait for it.

mod census;
mod connector;
mod probe;
mod reader;

use std::sync::Arc;

use agentvm_wire::observer::{CategoryCapability, EventCategory, ObserverBackend, ObserverEvent};
use tokio::sync::OnceCell;

pub(crate) use reader::HostEvents;

/// What is known only of what can still be looked at.
const GAPS: [&str; 2] = ["short_programs", "stops"];
/// Of whom nobody but themselves and root may know the program.
const GAP_OF_OTHERS: &str = "others_programs";
const RACES: &str =
    "what a program is that is over at once, or another user's, may not be known, and stops are not seen";
const PROCESSES_ONLY: &str = "of a whole host only processes are seen";

static FOUND: OnceCell<Result<(), String>> = OnceCell::const_new();

/// What is told of the host.
#[derive(Debug, Clone)]
pub(crate) enum Told {
    /// Something happened.
    Event(Arc<ObserverEvent>),
    /// So many things were not told; 0 if nobody knows.
    Lost(u64),
}

/// Tries it, unless that was done before.
pub(crate) async fn probe() {
    FOUND.get_or_init(probe::probe).await;
}

/// How well a category is seen of the whole host.
pub(super) fn cell(category: EventCategory) -> CategoryCapability {
    match (category, FOUND.get()) {
        (EventCategory::Process, Some(Ok(()))) => {
            let of_others = std::fs::read_link("/proc/1/exe").is_err().then_some(GAP_OF_OTHERS);
            let gaps = GAPS.into_iter().chain(of_others).map(str::to_owned).collect();
            CategoryCapability::partial(category, ObserverBackend::Connector, RACES, gaps)
        }
        (EventCategory::Process, Some(Err(why))) => CategoryCapability::unavailable(category, why),
        (EventCategory::Process, None) => CategoryCapability::unavailable(category, "it was not tried"),
        _ => CategoryCapability::unavailable(category, PROCESSES_ONLY),
    }
}
