//! [`ByteStream`]: a subscriber's view of one output.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use futures_core::Stream;
use tokio::{io::AsyncRead, task::coop::poll_proceed};

use super::{
    OutputFrom, OutputStream,
    reader::Reader,
    ring::{CursorId, Overflow, Read},
};
use crate::process::entry::Entry;

/// What a [`ByteStream`] yields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// The next bytes, at most 64 KiB, cut anywhere.
    Data(Bytes),
    /// This subscriber was too slow: so many bytes are missing here, exactly.
    Gap {
        /// How many.
        missed_bytes: u64,
    },
}

/// The stream broke before its end: the sidecar, the VM or the connection is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("output stream is lost: what follows is unknown")]
pub struct StreamLost;

/// One subscriber's view of an output, from [`AgentOs::on_process_stdout`](crate::AgentOs::on_process_stdout) and its
/// siblings. Implements [`Stream`]; [`ByteStream::next`] needs no extension trait.
///
/// Ends (`None`) only when the stream really ended: every process that held it open has closed it. A lost sidecar is
/// an error instead. Dropping it unsubscribes.
#[derive(Debug)]
pub struct ByteStream {
    entry: Arc<Entry>,
    which: OutputStream,
    cursor: Option<CursorId>,
    own_only: bool,
    failed: bool,
}

impl ByteStream {
    pub(crate) fn new(entry: Arc<Entry>, which: OutputStream, from: OutputFrom, overflow: Overflow) -> Self {
        let cursor = entry.subscribe(which, from, overflow);
        Self { entry, which, cursor, own_only: false, failed: false }
    }

    /// Ends at the last byte the process itself wrote instead of waiting for descendants that hold the stream open.
    #[must_use]
    pub fn until_exit(mut self) -> Self {
        self.own_only = true;
        self
    }

    /// The next bytes; an error once if what follows is lost. Cancel safe: what was not returned is returned by the next call.
    pub async fn next(&mut self) -> Option<Result<Output, StreamLost>> {
        std::future::poll_fn(|cx| self.poll_output(cx)).await
    }

    /// Reads to the end; what is missing is left out. An error if the end is lost. Cancelling loses what was read so far.
    pub async fn collect(mut self) -> Result<Vec<u8>, StreamLost> {
        let mut all = Vec::new();
        while let Some(output) = self.next().await {
            if let Output::Data(bytes) = output? {
                all.extend_from_slice(&bytes);
            }
        }
        Ok(all)
    }

    /// The stream as a reader. Bytes that are missing are an error of kind `Other` that holds an
    /// [`OutputGap`](crate::OutputGap), once; a lost stream is `UnexpectedEof` for good, never an end.
    ///
    /// ```no_run
    /// # async fn example(process: agentvm_sdk::Process) -> std::io::Result<()> {
    /// use tokio::io::{AsyncBufReadExt, BufReader};
    ///
    /// let mut lines = BufReader::new(process.stdout().into_async_read()).lines();
    /// while let Some(line) = lines.next_line().await? {
    ///     println!("{line}");
    /// }
    /// # Ok(()) }
    /// ```
    pub fn into_async_read(self) -> impl AsyncRead + Send + Unpin + use<> {
        Reader(self)
    }

    pub(super) fn is_lost(&self) -> bool {
        self.failed
    }

    fn poll_output(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Output, StreamLost>>> {
        match self.poll_peek(cx) {
            Poll::Ready(Some(Ok(Output::Data(bytes)))) => {
                self.advance(bytes.len());
                Poll::Ready(Some(Ok(Output::Data(bytes))))
            }
            other => other,
        }
    }

    /// What comes next, without taking it: a waiting subscriber holds the exit up until [`ByteStream::advance`].
    pub(crate) fn poll_peek(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Output, StreamLost>>> {
        let Some(cursor) = self.cursor.filter(|_| !self.failed) else { return Poll::Ready(None) };
        // A stream that always has more must let its neighbours in the same runtime have their turn.
        let turn = ready!(poll_proceed(cx));
        let output = match self.entry.read(self.which, cursor, self.own_only, cx.waker()) {
            Read::Data(bytes) => Some(Ok(Output::Data(bytes))),
            Read::Gap(missed_bytes) => Some(Ok(Output::Gap { missed_bytes })),
            Read::End => None,
            Read::Lost => {
                self.failed = true;
                Some(Err(StreamLost))
            }
            Read::Pending => return Poll::Pending,
        };
        turn.made_progress();
        Poll::Ready(output)
    }

    pub(crate) fn advance(&mut self, bytes: usize) {
        if let Some(cursor) = self.cursor {
            self.entry.advance(self.which, cursor, bytes);
        }
    }
}

impl Stream for ByteStream {
    type Item = Result<Output, StreamLost>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll_output(cx)
    }
}

impl Drop for ByteStream {
    fn drop(&mut self) {
        if let Some(cursor) = self.cursor {
            self.entry.unsubscribe(self.which, cursor);
        }
    }
}
