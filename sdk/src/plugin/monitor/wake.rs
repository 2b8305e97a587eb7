//! What a monitor has to say to the agent's next turn: apart from its events, until it is acknowledged.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::{dropped::Dropped, limits::MonitorLimits, status::MonitorWake};

/// The lines since the last acknowledgement: the newest of them, and how many are gone.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Wake {
    lines: VecDeque<(u64, String)>,
    bytes: usize,
    dropped: Dropped,
}

/// What a line adds to the agent's next turn.
pub(super) fn turn_input(id: &str, line: &str) -> String {
    format!("Monitor event \"{id}\": {line}")
}

impl Wake {
    pub(super) fn push(&mut self, sequence: u64, line: String, limits: &MonitorLimits) {
        self.bytes += line.len();
        self.lines.push_back((sequence, line));
        while self.lines.len() > 1 && (self.lines.len() > limits.wake_lines || self.bytes > limits.wake_bytes)
        {
            let (sequence, line) = self.lines.pop_front().expect("there are two");
            self.bytes -= line.len();
            self.dropped.add(sequence);
        }
    }

    /// What wakes, if something does.
    pub(super) fn text(&self, id: &str) -> Option<MonitorWake> {
        let through_sequence = self.lines.back()?.0;
        let dropped = self.dropped.count();
        let gone = (dropped > 0).then(|| format!("({dropped} earlier lines dropped)"));
        let lines = self.lines.iter().map(|(_, line)| line.as_str());
        let text = gone.as_deref().into_iter().chain(lines).collect::<Vec<_>>().join("\n");
        Some(MonitorWake {
            monitor_id: id.to_owned(),
            text: turn_input(id, &text),
            through_sequence,
            dropped,
        })
    }

    /// The text was just returned. True unless it was before.
    pub(super) fn returned(&mut self) -> bool {
        self.lines.back().is_some_and(|(through, _)| self.dropped.returned(*through))
    }

    /// The end of the text that was returned last; 0 if none was since the last acknowledgement.
    pub(super) fn returned_through(&self) -> u64 {
        self.dropped.returned_through()
    }

    /// Lines up to there have been read. What was never returned stays, whatever is acknowledged.
    pub(super) fn ack(&mut self, through: u64) {
        let through = through.min(self.returned_through());
        let read = self.lines.partition_point(|(sequence, _)| *sequence <= through);
        self.bytes -= self.lines.drain(..read).map(|(_, line)| line.len()).sum::<usize>();
        self.dropped.settle(through);
    }
}
