//! A connection whose client has not yet shown who it is: it may say little, and not for long.

use std::{
    io,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, ready},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    sync::OwnedSemaphorePermit,
};

/// Bytes read from a client before its `hello` is accepted, WebSocket handshake included.
pub(crate) const MAX_BYTES: usize = 64 << 10;

/// Whether a client has shown who it is. Until then its connection takes one of a few places.
#[derive(Debug, Clone)]
pub(crate) struct Proof(Arc<Mutex<Option<OwnedSemaphorePermit>>>);

impl Proof {
    pub(crate) fn awaited(place: OwnedSemaphorePermit) -> Self {
        Self(Arc::new(Mutex::new(Some(place))))
    }

    /// It has: the session is open, and its place is free again.
    pub(crate) fn accept(&self) {
        self.place().take();
    }

    fn is_accepted(&self) -> bool {
        self.place().is_none()
    }

    fn place(&self) -> MutexGuard<'_, Option<OwnedSemaphorePermit>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A stream that ends after [`MAX_BYTES`] unless its client has shown who it is.
#[derive(Debug)]
pub(crate) struct Unproven<S> {
    stream: S,
    read: usize,
    proof: Proof,
}

impl<S> Unproven<S> {
    pub(crate) fn new(stream: S, proof: Proof) -> Self {
        Self { stream, read: 0, proof }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Unproven<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.proof.is_accepted() {
            return Pin::new(&mut self.stream).poll_read(cx, buf);
        }
        let room = MAX_BYTES - self.read;
        if room == 0 {
            return Poll::Ready(Err(io::Error::other("too much was said before hello")));
        }
        let room = room.min(buf.remaining());
        let mut part = ReadBuf::new(buf.initialize_unfilled_to(room));
        ready!(Pin::new(&mut self.stream).poll_read(cx, &mut part))?;
        let count = part.filled().len();
        self.read += count;
        buf.advance(count);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Unproven<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
