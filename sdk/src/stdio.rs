//! Standard input and output of processes: rings with a cursor per subscriber, streams over them, the stdin queue.

mod events;
mod page;
mod reader;
pub(crate) mod ring;
pub(crate) mod stdin;
mod stream;
#[cfg(test)]
mod tests;

use std::time::Duration;

use agentvm_wire::process::StreamEnds;

pub use events::{OutputEvent, OutputEvents};
pub use page::{OutputPage, OutputState};
pub use reader::OutputGap;
pub use ring::Overflow;
pub use stdin::StdinInput;
pub use stream::{ByteStream, Output, StreamLost};

/// One of the two outputs of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the two that POSIX names")]
pub enum OutputStream {
    Stdout,
    Stderr,
}

impl OutputStream {
    /// `stdout` or `stderr`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        }
    }

    /// This stream's own of the two offsets.
    pub(crate) fn of(self, ends: StreamEnds) -> Option<u64> {
        match self {
            Self::Stdout => ends.stdout,
            Self::Stderr => ends.stderr,
        }
    }
}

/// Where a subscription to an output begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum OutputFrom {
    /// With the oldest byte that is retained; a [`Output::Gap`] tells what is gone before it, if something is.
    #[default]
    Start,
    /// With what arrives from now on.
    Now,
    /// At an absolute offset; a [`Output::Gap`] tells what of it is gone.
    Offset(u64),
}

/// How the sidecar awaits the tail of descendants' output behind an `exec`: re-armed by every chunk …
pub(crate) const DRAIN_QUIET: Duration = Duration::from_millis(50);
/// … and bounded in all.
pub(crate) const DRAIN_MAX: Duration = Duration::from_secs(1);
