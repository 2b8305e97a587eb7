//! What waits to be written to a process's standard input: one ordered queue, bounded in bytes.

use std::{
    collections::VecDeque,
    task::{Context, Poll, Waker},
};

use bytes::{Bytes, BytesMut};

use crate::error::ClientError;

/// Bytes for a process's standard input.
///
/// Text, byte vectors, slices and [`Bytes`] convert into it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StdinInput(pub Bytes);

impl From<Bytes> for StdinInput {
    fn from(bytes: Bytes) -> Self {
        Self(bytes)
    }
}

impl From<Vec<u8>> for StdinInput {
    fn from(bytes: Vec<u8>) -> Self {
        Self(bytes.into())
    }
}

impl From<String> for StdinInput {
    fn from(text: String) -> Self {
        Self(text.into())
    }
}

impl From<&str> for StdinInput {
    fn from(text: &str) -> Self {
        Self(Bytes::copy_from_slice(text.as_bytes()))
    }
}

impl From<&[u8]> for StdinInput {
    fn from(bytes: &[u8]) -> Self {
        Self(Bytes::copy_from_slice(bytes))
    }
}

impl<const N: usize> From<&[u8; N]> for StdinInput {
    fn from(bytes: &[u8; N]) -> Self {
        Self(Bytes::copy_from_slice(bytes))
    }
}

/// Writes below this size are copied together where others wait before them.
const SMALL_BYTES: usize = 4 << 10;

/// The queue of one process.
#[derive(Debug)]
pub(crate) struct StdinQueue {
    chunks: VecDeque<Bytes>,
    /// Small writes behind them: kept one by one they would take many times their size.
    small: BytesMut,
    queued: u64,
    limit: u64,
    state: State,
    /// Writers that wait for room.
    waiting: Vec<Waker>,
}

/// What goes out next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct StdinChunk {
    pub(crate) bytes: Bytes,
    /// The end comes with it.
    pub(crate) fin: bool,
    /// More is queued behind it.
    pub(crate) more: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    /// What is queued still goes out, then the end.
    Closing,
    Closed,
}

impl StdinQueue {
    pub(crate) fn new(limit: u64) -> Self {
        Self { limit, state: State::Open, ..Self::closed() }
    }

    /// The queue of a process without standard input.
    pub(crate) fn closed() -> Self {
        Self {
            chunks: VecDeque::new(),
            small: BytesMut::new(),
            queued: 0,
            limit: 0,
            state: State::Closed,
            waiting: Vec::new(),
        }
    }

    /// Takes the bytes whole if nothing is queued or they fit; else takes none.
    pub(crate) fn write(&mut self, bytes: Bytes) -> Result<(), ClientError> {
        if self.state != State::Open {
            return Err(ClientError::StdinClosed);
        }
        let len = bytes.len() as u64;
        if self.queued > 0 && self.queued + len > self.limit {
            return Err(ClientError::StdinFull { queued: self.queued, limit: self.limit });
        }
        self.queued += len;
        if bytes.len() < SMALL_BYTES && self.queued > len {
            self.small.extend_from_slice(&bytes);
        } else if len > 0 {
            self.gather();
            self.chunks.push_back(bytes);
        }
        Ok(())
    }

    /// Small writes become a chunk.
    fn gather(&mut self) {
        if !self.small.is_empty() {
            self.chunks.push_back(self.small.split().freeze());
        }
    }

    /// Takes the bytes whole, once they fit or nothing is queued.
    pub(crate) fn poll_write_all(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &Bytes,
    ) -> Poll<Result<(), ClientError>> {
        match self.write(bytes.clone()) {
            Err(ClientError::StdinFull { .. }) => self.wait_for_room(cx),
            written => Poll::Ready(written),
        }
    }

    /// Takes as much as there is room for, at least one byte.
    pub(crate) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<Result<usize, ClientError>> {
        let room = self.limit.saturating_sub(self.queued);
        if self.state == State::Open && room == 0 && self.queued > 0 && !bytes.is_empty() {
            return self.wait_for_room(cx);
        }
        let taken = usize::try_from(room.max(1)).map_or(bytes.len(), |room| room.min(bytes.len()));
        Poll::Ready(self.write(Bytes::copy_from_slice(&bytes[..taken])).map(|()| taken))
    }

    fn wait_for_room<T>(&mut self, cx: &mut Context<'_>) -> Poll<T> {
        if !self.waiting.iter().any(|waker| waker.will_wake(cx.waker())) {
            self.waiting.push(cx.waker().clone());
        }
        Poll::Pending
    }

    /// The end comes after everything written before; a second close is harmless.
    pub(crate) fn close(&mut self) {
        if self.state == State::Open {
            self.state = State::Closing;
        }
    }

    /// Nothing more goes out: the process, its reader or the connection is gone.
    pub(crate) fn abandon(&mut self, wakers: &mut Vec<Waker>) {
        wakers.append(&mut self.waiting);
        *self = Self::closed();
    }

    /// The next bytes to send, at most `max`; whoever waited for room is to be woken.
    pub(crate) fn take(&mut self, max: usize, wakers: &mut Vec<Waker>) -> StdinChunk {
        if self.chunks.is_empty() {
            self.gather();
        }
        let bytes = match self.chunks.front_mut() {
            Some(chunk) if chunk.len() > max => chunk.split_to(max),
            Some(_) => self.chunks.pop_front().expect("there is a front"),
            None => Bytes::new(),
        };
        self.queued -= bytes.len() as u64;
        wakers.append(&mut self.waiting);
        let fin = self.state == State::Closing && self.queued == 0;
        if fin {
            self.state = State::Closed;
        }
        StdinChunk { bytes, fin, more: self.queued > 0 }
    }
}
