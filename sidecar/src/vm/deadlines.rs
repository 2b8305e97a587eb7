//! What is due when in a VM, on the monotonic clock: the timeouts of its processes, how long their ends wait for an
//! observer, and the end of its own grace.

use std::{collections::BTreeSet, time::Duration};

use agentvm_wire::id::ProcessId;
use tokio::time::Instant;

/// At most two for each process, and one for the VM.
#[derive(Debug, Default)]
pub(super) struct Deadlines(BTreeSet<(Instant, Due)>);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Due {
    /// The process's timeout has run out.
    Process(ProcessId),
    /// The process's end is told, whether or not it was seen from elsewhere.
    Exit(ProcessId),
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

    /// Takes one that has come by `now`.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<Due> {
        let (at, due) = *self.0.first()?;
        (at <= now).then(|| {
            self.0.pop_first();
            due
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nothing but monotonic instants goes in: where the wall clock stands, or is set to, is no matter (and clippy lets
    /// nobody measure by it).
    #[test]
    fn c80_a_deadline_comes_when_its_time_has_passed_and_not_before() {
        let begun = Instant::now();
        let at = |seconds| begun + Duration::from_secs(seconds);
        let (five, ten) = (Due::Process(ProcessId(5)), Due::Process(ProcessId(10)));
        let mut deadlines = Deadlines::default();
        assert!(deadlines.add(at(10), ten));
        assert!(deadlines.add(at(5), five), "it is the first now");
        assert!(!deadlines.add(at(3600), Due::Grace));
        assert_eq!(deadlines.take_due(at(4)), None);
        assert_eq!((deadlines.take_due(at(5)), deadlines.take_due(at(5))), (Some(five), None));
        deadlines.remove(at(10), ten);
        assert_eq!(deadlines.take_due(at(3599)), None, "what has ended in time is due no more");
        assert_eq!((deadlines.take_due(at(3600)), deadlines.next()), (Some(Due::Grace), None));
    }

    #[test]
    fn c80_no_time_is_too_long() {
        assert!(after(u64::MAX) > Instant::now() + Duration::from_secs(3600));
        assert!(after(0) <= Instant::now());
    }
}
