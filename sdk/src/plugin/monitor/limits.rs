//! Bounds on what a session's monitors keep.

/// Bounds on the monitors of a session. [`MonitorFactory::limits`](super::MonitorFactory::limits) sets them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct MonitorLimits {
    /// Monitors: 256. One more is refused with [`PluginError::ResourceLimit`](crate::plugin::PluginError::ResourceLimit).
    pub monitors: usize,
    /// Events kept of one monitor: 512. The oldest go first, counted, and shown as one event.
    pub events: usize,
    /// Bytes of text in them: 1 MiB.
    pub event_bytes: usize,
    /// Lines in the text of one wake: 100. The oldest go first, counted in the text.
    pub wake_lines: usize,
    /// Bytes of text in them: 16 KiB; the last line is kept whole, however long.
    pub wake_bytes: usize,
}

impl Default for MonitorLimits {
    fn default() -> Self {
        Self { monitors: 256, events: 512, event_bytes: 1 << 20, wake_lines: 100, wake_bytes: 16 << 10 }
    }
}
