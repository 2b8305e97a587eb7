//! How much of a numbered sequence was dropped, and how much of that since something was returned.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

/// Returned parts that are told apart. Beyond that the oldest two become one, and what is dropped of the older counts
/// until the newer is settled.
const MAX_MARKS: usize = 64;

/// Counts what was dropped by what had been returned when: a part that is settled takes its own dropped with it and
/// leaves those that nobody has seen.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Dropped {
    /// By the end of the part, rising.
    returned: VecDeque<Part>,
    /// Behind everything that was returned.
    rest: Part,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Part {
    /// Its last number; 0 where it is not known yet.
    through: u64,
    dropped: u64,
    /// The newest that was dropped.
    newest: u64,
}

impl Part {
    fn add(&mut self, sequence: u64) {
        self.dropped += 1;
        self.newest = self.newest.max(sequence);
    }
}

impl Dropped {
    /// Drops one. True if it was never returned.
    pub(super) fn add(&mut self, sequence: u64) -> bool {
        let at = self.returned.partition_point(|part| part.through < sequence);
        self.returned.get_mut(at).unwrap_or(&mut self.rest).add(sequence);
        at == self.returned.len()
    }

    /// Everything up to there was just returned. True unless that was so before.
    pub(super) fn returned(&mut self, through: u64) -> bool {
        if self.returned_through() >= through {
            return false;
        }
        self.returned.push_back(Part { through, ..std::mem::take(&mut self.rest) });
        if self.returned.len() > MAX_MARKS {
            let oldest = self.returned.pop_front().expect("there are many");
            let next = &mut self.returned[0];
            next.dropped += oldest.dropped;
            next.newest = next.newest.max(oldest.newest);
        }
        true
    }

    /// The end of what was returned last and is not settled; 0 if nothing is.
    pub(super) fn returned_through(&self) -> u64 {
        self.returned.back().map_or(0, |part| part.through)
    }

    /// What was returned up to there is done with.
    pub(super) fn settle(&mut self, through: u64) {
        let settled = self.returned.partition_point(|part| part.through <= through);
        self.returned.drain(..settled);
        if self.returned.is_empty() && self.rest.newest <= through {
            self.rest = Part::default();
        }
    }

    /// How many were dropped and not settled.
    pub(super) fn count(&self) -> u64 {
        self.returned.iter().chain([&self.rest]).map(|part| part.dropped).sum()
    }
}
