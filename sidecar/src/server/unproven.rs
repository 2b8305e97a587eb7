//! A connection whose client has not yet shown who it is: it may say little, and not for long.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes read from a client before its `hello` is accepted, WebSocket handshake included.
pub(crate) const MAX_BYTES: usize = 64 << 10;

/// Set once the session is open.
#[derive(Debug, Clone, Default)]
pub(crate) struct Proof(Arc<AtomicBool>);

impl Proof {
    pub(crate) fn accept(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn is_accepted(&self) -> bool {
        self.0.load(Ordering::Relaxed)
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
