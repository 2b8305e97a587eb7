//! What of a session outlives the program, and how the next one goes on from it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Monitor, Session};

/// More numbers than events can have come since the last save of a program that was killed: what it has told is never
/// told again under the same number.
const UNSAVED_SEQUENCES: u64 = 1 << 32;

/// See the module.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(in crate::plugin::monitor) struct Kept {
    pub(super) monitors: BTreeMap<String, Monitor>,
    /// The number of the last event.
    pub(super) sequence: u64,
    /// Events up to there were taken.
    pub(super) taken: u64,
    /// It was saved when nothing could happen any more.
    pub(super) closed: bool,
}

impl Session {
    /// What is saved.
    pub(in crate::plugin::monitor) fn kept(&self) -> Kept {
        let mut kept = self.kept.clone();
        for monitor in kept.monitors.values_mut() {
            monitor.events = monitor.events.without_taken(kept.taken);
        }
        kept
    }

    /// Goes on from there: what ran has ended with its session, and starts again where that is wanted.
    pub(in crate::plugin::monitor) fn restore(&mut self, kept: Kept, now_ms: u64) {
        self.kept = kept;
        if !self.kept.closed {
            self.kept.sequence += UNSAVED_SEQUENCES;
        }
        self.returned = self.kept.taken;
        for id in self.ids(|_| true) {
            let monitor = self.kept.monitors.get_mut(&id).expect("just found");
            let run_id = monitor.life.run_id;
            if monitor.life.restore(monitor.spec.restart_on_restore) {
                let message = "Monitor interrupted: its session ended".to_owned();
                self.happened(&id, run_id, message, true, now_ms);
            }
        }
        self.revision += 1;
    }
}
