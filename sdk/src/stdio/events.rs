//! [`OutputEvents`]: both outputs of a process as one stream.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use futures_core::Stream;
use tokio::task::coop::poll_proceed;

use super::{Output, OutputFrom, OutputStream, Overflow, StreamLost};
use crate::process::entry::{Cursors, Entry, Next};

/// A piece of a process's output, from [`OutputEvents`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct OutputEvent {
    /// Which output.
    pub stream: OutputStream,
    /// Absolute offset in that output of the first byte, be it data or missing.
    pub offset: u64,
    /// When it reached this program: wall clock, epoch milliseconds. For a gap: when what follows it did.
    pub received_at_ms: u64,
    /// The bytes, or how many are missing.
    pub output: Output,
}

/// Both outputs of a process in the order in which they arrived, from
/// [`AgentOs::on_process_output`](crate::AgentOs::on_process_output) and [`Process::output`](crate::Process::output).
/// Implements [`Stream`]; [`OutputEvents::next`] needs no extension trait.
///
/// The process never waits for it: a subscriber that is too slow gets exact gaps. It ends (`None`) once both outputs
/// have ended; if one is lost, an error comes before that, after everything that arrived. Dropping it unsubscribes.
#[derive(Debug)]
pub struct OutputEvents {
    entry: Arc<Entry>,
    cursors: Cursors,
    own_only: bool,
    failed: bool,
}

impl OutputEvents {
    pub(crate) fn new(entry: Arc<Entry>) -> Self {
        let streams = [OutputStream::Stdout, OutputStream::Stderr];
        let cursors = streams
            .into_iter()
            .filter_map(|which| {
                Some((which, entry.subscribe(which, OutputFrom::Start, Overflow::DropOldest)?))
            })
            .collect();
        Self { entry, cursors, own_only: false, failed: false }
    }

    /// Ends with the last byte the process itself wrote instead of waiting for descendants that hold an output open.
    #[must_use]
    pub fn until_exit(mut self) -> Self {
        self.own_only = true;
        self
    }

    /// The next piece, at most 64 KiB; an error once if what follows is lost. Cancel safe: what was not returned is returned by the next call.
    pub async fn next(&mut self) -> Option<Result<OutputEvent, StreamLost>> {
        std::future::poll_fn(|cx| self.poll_event(cx)).await
    }

    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<OutputEvent, StreamLost>>> {
        if self.failed {
            return Poll::Ready(None);
        }
        // A stream that always has more must let its neighbours in the same runtime have their turn.
        let turn = ready!(poll_proceed(cx));
        let event = match self.entry.read_next(&self.cursors, self.own_only, cx.waker()) {
            Next::Event(event) => Some(Ok(event)),
            Next::Pending => return Poll::Pending,
            Next::Lost => {
                self.failed = true;
                Some(Err(StreamLost))
            }
            Next::End => None,
        };
        turn.made_progress();
        Poll::Ready(event)
    }
}

impl Stream for OutputEvents {
    type Item = Result<OutputEvent, StreamLost>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll_event(cx)
    }
}

impl Drop for OutputEvents {
    fn drop(&mut self) {
        for (which, cursor) in &self.cursors {
            self.entry.unsubscribe(*which, *cursor);
        }
    }
}
