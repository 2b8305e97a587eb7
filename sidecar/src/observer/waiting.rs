//! How much may wait for readers, over all observations of one VM.

use std::sync::atomic::{AtomicUsize, Ordering};

use agentvm_wire::observer::{MAX_EVENTS, MAX_EVENTS_BYTES};

/// What waits now. All is counted on one thread.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    events: AtomicUsize,
    bytes: AtomicUsize,
}

impl Waiting {
    /// Counts one more event; false if there is no room for it.
    pub(super) fn add(&self, bytes: usize) -> bool {
        let (events, held) = (self.events.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed));
        let fits = events < MAX_EVENTS && held.saturating_add(bytes) <= MAX_EVENTS_BYTES;
        if fits {
            self.events.store(events + 1, Ordering::Relaxed);
            self.bytes.store(held + bytes, Ordering::Relaxed);
        }
        fits
    }

    /// One waits no more.
    pub(super) fn remove(&self, bytes: usize) {
        self.events.fetch_sub(1, Ordering::Relaxed);
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}
