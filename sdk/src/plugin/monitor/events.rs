//! The events kept of one monitor: the newest, and what stands for those that were dropped before anybody took them.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::{
    dropped::Dropped,
    limits::MonitorLimits,
    status::{MonitorEvent, MonitorStream},
};

/// See the module.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Events {
    kept: VecDeque<MonitorEvent>,
    bytes: usize,
    dropped: Dropped,
    /// The newest that was dropped unseen: its place is where the gap shows.
    gap: Option<MonitorEvent>,
    /// How many were dropped that were never returned.
    pub(super) dropped_count: u64,
}

impl Events {
    /// Adds an event; what makes room for it counts as dropped if it is newer than `taken`.
    pub(super) fn push(&mut self, event: MonitorEvent, limits: &MonitorLimits, taken: u64) {
        self.bytes += event.message.len();
        self.kept.push_back(event);
        while self.kept.len() > 1 && (self.kept.len() > limits.events || self.bytes > limits.event_bytes) {
            let oldest = self.kept.pop_front().expect("there are two");
            self.bytes -= oldest.message.len();
            if oldest.sequence > taken {
                self.dropped_count += u64::from(self.dropped.add(oldest.sequence));
                self.gap = Some(oldest);
            }
        }
    }

    /// How many were dropped and are not taken as such.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped.count()
    }

    /// What nobody has taken: the gap, if there is one, and what is kept behind it.
    pub(super) fn untaken(&self, taken: u64) -> impl Iterator<Item = MonitorEvent> + '_ {
        let dropped = self.dropped.count();
        let gap = self.gap.as_ref().filter(|_| dropped > 0).map(|gap| MonitorEvent {
            message: format!("{dropped} events dropped"),
            queue_turn_input: None,
            stream: MonitorStream::Lifecycle,
            truncated: false,
            ..gap.clone()
        });
        gap.into_iter().chain(self.kept_from(taken + 1).cloned())
    }

    /// What is kept from there on, taken or not.
    pub(super) fn kept_from(&self, sequence: u64) -> impl Iterator<Item = &MonitorEvent> {
        self.kept.range(self.kept.partition_point(|event| event.sequence < sequence)..)
    }

    /// Everything was just returned.
    pub(super) fn returned(&mut self) {
        if let Some(newest) = self.kept.back() {
            self.dropped.returned(newest.sequence);
        }
    }

    /// Everything up to there is taken.
    pub(super) fn take(&mut self, through: u64) {
        self.dropped.settle(through);
        if self.dropped.count() == 0 {
            self.gap = None;
        }
    }

    /// As it is saved: what was taken is not.
    pub(super) fn without_taken(&self, taken: u64) -> Self {
        let kept: VecDeque<_> = self.kept_from(taken + 1).cloned().collect();
        let bytes = kept.iter().map(|event| event.message.len()).sum();
        Self { kept, bytes, dropped: self.dropped.clone(), gap: self.gap.clone(), ..*self }
    }
}
