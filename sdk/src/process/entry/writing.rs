//! How handles write to a process, and how the connection takes that on.

use std::{
    future::poll_fn,
    io,
    task::{Context, Poll, Waker},
};

use bytes::Bytes;

use super::Entry;
use crate::{error::ClientError, stdio::stdin::StdinChunk};

impl Entry {
    /// The next bytes for standard input.
    pub(crate) fn take_stdin(&self, max: usize, wakers: &mut Vec<Waker>) -> StdinChunk {
        self.lock().stdin.take(max, wakers)
    }

    pub(crate) fn write_stdin(&self, bytes: Bytes) -> Result<(), ClientError> {
        self.lock().stdin.write(bytes)?;
        self.stdin_ready();
        Ok(())
    }

    /// Takes as much as there is room for, waiting until there is some; `BrokenPipe` once standard input is closed.
    pub(crate) fn poll_write_stdin(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let taken = std::task::ready!(self.lock().stdin.poll_write(cx, bytes));
        self.stdin_ready();
        Poll::Ready(taken.map_err(|error| io::Error::new(io::ErrorKind::BrokenPipe, error)))
    }

    /// Takes the bytes whole, once they fit or nothing is queued.
    pub(crate) async fn write_stdin_all(&self, bytes: Bytes) -> Result<(), ClientError> {
        // Nobody closes the semaphore.
        let _turn = self.stdin_turn.acquire().await;
        poll_fn(|cx| self.lock().stdin.poll_write_all(cx, &bytes)).await?;
        self.stdin_ready();
        Ok(())
    }

    pub(crate) fn close_stdin(&self) {
        self.lock().stdin.close();
        self.stdin_ready();
    }

    fn stdin_ready(&self) {
        if let Some(stream) = self.streams.stdin {
            self.link.stream_ready(stream);
        }
    }
}
