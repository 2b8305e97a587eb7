//! What is due when in a VM, on the monotonic clock: the timeouts of its processes, and the end of its own grace.

use std::{collections::BTreeSet, time::Duration};

use agentvm_wire::id::ProcessId;
use tokio::time::Instant;

/// At most one for each process, and one for the VM.
#[derive(Debug, Default)]
pub(super) struct Deadlines(BTreeSet<(Instant, Due)>);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Due {
    /// The process's timeout has run out.
    Process(ProcessId),
    /// The VM's grace has.
    Grace,
}

/// The moment so many milliseconds from now; what lies beyond a century is a century away.
pub(crate) fn after(ms: u64) -> Instant {
    const CENTURY: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);
    Instant::now() + Duration::from_millis(ms).min(CENTURY)
}

impl Deadlines {
    /// The returned value tells whether it is now the first.
    pub(super) fn add(&mut self, at: Instant, due: Due) -> bool {
        self.0.insert((at, due));
        self.0.first() == Some(&(at, due))
    }

    pub(super) fn remove(&mut self, at: Instant, due: Due) {
        self.0.remove(&(at, due));
    }

    pub(super) fn next(&self) -> Option<Instant> {
        self.0.first().map(|(at, _)| *at)
    }

    /// Takes one that has come.
    pub(super) fn take_due(&mut self) -> Option<Due> {
        let (at, due) = *self.0.first()?;
        (at <= Instant::now()).then(|| {
            self.0.pop_first();
            due
        })
    }
}
