//! Standard input of a process: the writing end of its pipe, and what waits to go into it (at most the stream's
//! window: credit follows what was written).

use std::{
    collections::VecDeque,
    io,
    os::fd::OwnedFd,
    sync::{Arc, Mutex, MutexGuard},
};

use agentvm_wire::{error::Code, id::StreamId};
use bytes::{Buf as _, Bytes, BytesMut};
use tokio::{
    io::{Interest, unix::AsyncFd},
    sync::Notify,
};

use crate::link::Link;

#[derive(Debug)]
pub(crate) struct Sink {
    stream: StreamId,
    queue: Mutex<Queue>,
    changed: Notify,
}

/// Messages below this size are copied together: each keeps the memory it was received in.
const SMALL_BYTES: usize = 4 << 10;

#[derive(Debug, Default)]
struct Queue {
    chunks: VecDeque<Bytes>,
    /// Small ones behind them.
    small: BytesMut,
    /// Nothing follows the chunks.
    ends: bool,
    /// Not even the chunks are wanted.
    abandoned: bool,
}

impl Queue {
    fn push(&mut self, payload: Bytes) {
        if payload.len() < SMALL_BYTES {
            self.small.extend_from_slice(&payload);
        } else {
            self.gather();
            self.chunks.push_back(payload);
        }
    }

    fn next(&mut self) -> Option<Bytes> {
        if self.chunks.is_empty() {
            self.gather();
        }
        self.chunks.pop_front()
    }

    /// Small messages become a chunk.
    fn gather(&mut self) {
        if !self.small.is_empty() {
            self.chunks.push_back(self.small.split().freeze());
        }
    }
}

impl Sink {
    pub(crate) fn new(stream: StreamId) -> Arc<Self> {
        Arc::new(Self { stream, queue: Mutex::default(), changed: Notify::new() })
    }

    pub(crate) fn stream(&self) -> StreamId {
        self.stream
    }

    pub(crate) fn push(&self, payload: Bytes, fin: bool) {
        let mut queue = self.lock();
        queue.push(payload);
        queue.ends |= fin;
        drop(queue);
        self.changed.notify_one();
    }

    /// The stream ended incomplete: the pipe is closed as it stands.
    pub(crate) fn abandon(&self) {
        self.lock().abandoned = true;
        self.changed.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().expect("no code panics under this lock")
    }

    /// Writes what comes, in order; closes the pipe at the end. Runs until then.
    pub(crate) async fn pump(self: Arc<Self>, pipe: AsyncFd<OwnedFd>, link: Arc<Link>) {
        let mut written = 0;
        loop {
            let next = {
                let mut queue = self.lock();
                match queue.next() {
                    _ if queue.abandoned => return,
                    None if queue.ends => return,
                    next => next,
                }
            };
            let Some(mut chunk) = next else {
                tokio::select! {
                    () = self.changed.notified() => continue,
                    () = nobody_reads(&pipe) => return link.stop(self.stream, &Code::EPIPE),
                }
            };
            while chunk.has_remaining() {
                tokio::select! {
                    result = write(&pipe, &chunk) => match result {
                        Ok(count) => {
                            chunk.advance(count);
                            written += count as u64;
                            link.consumed(self.stream, written);
                        }
                        Err(_) => return link.stop(self.stream, &Code::EPIPE),
                    },
                    () = self.changed.notified() => if self.lock().abandoned { return },
                }
            }
        }
    }
}

/// Resolves once every reading end is closed, pipe(7).
async fn nobody_reads(pipe: &AsyncFd<OwnedFd>) {
    // It fails only where the runtime ends.
    let _ = pipe.ready(Interest::ERROR).await;
}

async fn write(pipe: &AsyncFd<OwnedFd>, bytes: &[u8]) -> io::Result<usize> {
    loop {
        let mut guard = pipe.writable().await?;
        match guard.try_io(|pipe| Ok(rustix::io::write(pipe, bytes)?)) {
            Ok(result) => return result,
            Err(_would_block) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_messages_wait_as_one_and_all_keep_their_order() {
        let mut queue = Queue::default();
        let mut sent = Vec::new();
        for (at, len) in [1, 1, 5000, 1, 4095, 4096, 0, 3].into_iter().cycle().take(40_000).enumerate() {
            let payload = vec![at.to_le_bytes()[0]; if at < 30_000 { len.min(1) } else { len }];
            sent.extend_from_slice(&payload);
            queue.push(payload.into());
        }
        let large = queue.chunks.len();
        assert!(large < 8000, "{large} chunks for 2500 large messages and what lies between");
        let all: Vec<u8> = std::iter::from_fn(|| queue.next()).flatten().collect();
        assert!(all == sent);
    }
}
