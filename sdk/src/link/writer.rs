//! The sending half of a connection: whoever has something to say writes it, if nobody else writes at that moment and
//! the socket takes it; the driver writes the rest. A request so reaches the sidecar without a thread being woken.

use std::{
    fmt,
    future::poll_fn,
    pin::{Pin, pin},
    sync::{Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker, ready},
};

use agentvm_wire::stdio::{CHUNK_BYTES, HEADER_BYTES};
use bytes::{BufMut as _, BytesMut};
use futures_util::{Sink, SinkExt as _, stream::SplitSink};
use tokio::{runtime::Handle, task::unconstrained, time::timeout};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{Error, Message, protocol::CloseFrame},
};

use super::{Link, Outgoing, driver::CLOSE_LIMIT};
use crate::transport::Duplex;

type Half = SplitSink<WebSocketStream<Box<dyn Duplex>>, Message>;

/// Where messages go to; empty before the handshake and after the end.
#[derive(Debug, Default)]
pub(super) struct Writer(Mutex<Option<Open>>);

struct Open {
    sink: Half,
    /// The connection's own: its stream is polled in no other.
    runtime: Handle,
    /// The driver waits for room in the socket, and would not be told of it if anybody else asked for some.
    blocked: bool,
}

impl fmt::Debug for Open {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Open").field("blocked", &self.blocked).finish_non_exhaustive()
    }
}

/// What a batch held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Batch {
    /// There was nothing to send.
    Empty,
    /// It is in the socket; there may be more.
    Sent,
    /// All is sent, and the session is to end.
    Close,
}

/// Ends what may be written when it is dropped: the socket closes with it.
#[derive(Debug)]
pub(super) struct Opened<'a>(&'a Writer);

impl Drop for Opened<'_> {
    fn drop(&mut self) {
        self.0.lock().take();
    }
}

impl Opened<'_> {
    /// Sends a last message; none goes out after it.
    pub(super) async fn close(self, last: CloseFrame) {
        let open = self.0.lock().take();
        if let Some(Open { mut sink, .. }) = open {
            // A peer that is told to go may have gone, or may not read.
            let _ = timeout(CLOSE_LIMIT, sink.send(Message::Close(Some(last)))).await;
        }
    }

    /// Sends what there is to send, up to about a chunk, in one write. No more is chosen before it is in the socket,
    /// so control never waits behind more than one batch. Cancel safe: the next call goes on.
    pub(super) async fn batch(&self, link: &Link) -> Result<Batch, Error> {
        poll_fn(|cx| match &mut *self.0.lock() {
            Some(Open { sink, blocked, .. }) => {
                let polled = poll_batch(sink, link, cx);
                *blocked = polled.is_pending();
                polled
            }
            None => Poll::Ready(Err(Error::AlreadyClosed)),
        })
        .await
    }
}

impl Writer {
    /// Messages may be written from now on. Called within the connection's runtime.
    pub(super) fn open(&self, sink: Half) -> Opened<'_> {
        *self.lock() = Some(Open { sink, runtime: Handle::current(), blocked: false });
        Opened(self)
    }

    /// Sends a batch if that can be done at once; whether nothing is left to do.
    fn try_batch(&self, link: &Link) -> bool {
        let Ok(mut writer) = self.0.try_lock() else { return false };
        let Some(Open { sink, runtime, blocked: false }) = &mut *writer else { return false };
        let _within = runtime.enter();
        // One batch and no more; what comes of the rest, of an error and of the end is the driver's. The caller's task
        // is not charged for it: a call that sends something would end its turn.
        let mut batch = pin!(unconstrained(poll_fn(|cx| poll_batch(sink, link, cx))));
        let mut nobody = Context::from_waker(Waker::noop());
        let mut all_sent = || matches!(batch.as_mut().poll(&mut nobody), Poll::Ready(Ok(Batch::Empty)));
        all_sent() || all_sent()
    }

    fn lock(&self) -> MutexGuard<'_, Option<Open>> {
        // After a transport that panicked on a caller's thread the driver has to ask it again, to end the session.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Link {
    /// Sends what was just posted: on this thread if that can be done at once, else on the driver's.
    pub(super) fn send(&self) {
        if !self.writer.try_batch(self) {
            self.wake.notify_one();
        }
    }
}

fn poll_batch(sink: &mut Half, link: &Link, cx: &mut Context<'_>) -> Poll<Result<Batch, Error>> {
    let mut sink = Pin::new(sink);
    let mut bytes = 0;
    while bytes < CHUNK_BYTES {
        ready!(sink.as_mut().poll_ready(cx))?;
        let message = match link.next_outgoing() {
            Some(Outgoing::Control(text)) => Message::text(text),
            Some(Outgoing::Stdin(header, chunk)) => {
                let mut message = BytesMut::with_capacity(HEADER_BYTES + chunk.len());
                message.put_slice(&header.encode());
                message.put_slice(&chunk);
                Message::Binary(message.freeze())
            }
            Some(Outgoing::Close) if bytes == 0 => {
                ready!(sink.as_mut().poll_flush(cx))?;
                return Poll::Ready(Ok(Batch::Close));
            }
            Some(Outgoing::Close) | None => break,
        };
        bytes += message.len();
        sink.as_mut().start_send(message)?;
    }
    // Also what an earlier batch could not: it may have been left to this one.
    ready!(sink.poll_flush(cx))?;
    Poll::Ready(Ok(if bytes == 0 { Batch::Empty } else { Batch::Sent }))
}
