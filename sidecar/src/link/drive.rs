//! Carries messages between the core and the socket. Reading never awaits writing: the two are polled side by side.

#[cfg(test)]
mod tests;

use std::{future::pending, sync::Arc, time::Duration};

use agentvm_wire::{
    connection::{Received, Violation},
    id::{RequestId, StreamId},
    message::{Request, Scope},
    stdio::{CHUNK_BYTES, HEADER_BYTES},
};
use bytes::Bytes;
use futures_util::{Sink, SinkExt as _, Stream, StreamExt as _};
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt as _},
    time::timeout,
};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        self, Message,
        error::ProtocolError,
        protocol::{CloseFrame, frame::coding::CloseCode},
    },
};
use tokio_util::sync::CancellationToken;

use super::Link;
use crate::stdio::outflow::{Outflow, Taken};

/// How long a close frame may take to leave.
const CLOSE_LIMIT: Duration = Duration::from_secs(1);
/// Control messages that may wait while the client does not read; beyond it nothing more is read from it.
const MAX_BACKLOG: usize = 16_384;

/// Who acts on requests. Called in the order of their arrival; must not block.
pub(crate) trait Handler {
    /// Finds out what a request depends on; until then nothing more is read from this client.
    async fn prepare(&mut self, request: &Request);
    /// A request to answer exactly once; an error ends the connection behind what was answered.
    fn request(&mut self, id: RequestId, scope: Scope, request: Request) -> Result<(), Violation>;
    /// The client no longer cares for an answer it still gets.
    fn cancel(&mut self, id: RequestId);
}

/// Why a connection ended.
#[derive(Debug)]
pub(crate) enum Ended {
    /// The client closed it, or is gone.
    Closed,
    /// The client broke the protocol and was told so.
    Violation(Violation),
    /// The sidecar shuts down; the client was told so.
    Leaving,
}

impl Ended {
    /// The client is told why, where it does not know.
    fn farewell(&self) -> Option<CloseFrame> {
        match self {
            Self::Closed => None,
            Self::Violation(Violation { close_code, reason }) => {
                Some(CloseFrame { code: (*close_code).into(), reason: reason.as_str().into() })
            }
            Self::Leaving => {
                Some(CloseFrame { code: CloseCode::Away, reason: "the sidecar shuts down".into() })
            }
        }
    }
}

/// Runs a connection to its end, or until the sidecar leaves.
pub(crate) async fn drive<S>(
    link: &Link,
    socket: WebSocketStream<S>,
    handler: &mut impl Handler,
    leave: &CancellationToken,
) -> Ended
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let (mut sink, mut stream) = socket.split();
    let ended = tokio::select! {
        ended = read(link, &mut stream, handler) => ended,
        ended = write(link, &mut sink) => ended,
        () = leave.cancelled() => Ended::Leaving,
    };
    let farewell = async {
        if let Some(close) = ended.farewell() {
            while let Some(text) = link.next_answer() {
                sink.feed(Message::text(text)).await?;
            }
            sink.feed(Message::Close(Some(close))).await?;
        }
        // The answer to a client's own close frame waits in there already.
        sink.flush().await?;
        let socket = sink.reunite(stream).expect("both are halves of one socket");
        hang_up(socket.into_inner()).await;
        Ok::<_, tungstenite::Error>(())
    };
    // It may not read.
    let _ = timeout(CLOSE_LIMIT, farewell).await;
    ended
}

/// Listens until the client hangs up as well: closing a socket in which something lies unread takes the farewell away
/// from the client, who gets an error in its place.
async fn hang_up(mut socket: impl AsyncRead + AsyncWrite + Unpin) {
    // Errors say that the client has gone.
    let _ = socket.shutdown().await;
    let _ = tokio::io::copy(&mut socket, &mut tokio::io::sink()).await;
}

async fn read(
    link: &Link,
    stream: &mut (impl Stream<Item = Result<Message, tungstenite::Error>> + Unpin),
    handler: &mut impl Handler,
) -> Ended {
    loop {
        let message = match stream.next().await {
            Some(Ok(message)) => message,
            Some(Err(error)) => return failed(&error),
            None => return Ended::Closed,
        };
        let received = match message {
            Message::Text(text) => link.lock().connection.receive_text(&text),
            Message::Binary(bytes) => link.lock().connection.receive_binary(bytes),
            Message::Close(_) => return Ended::Closed,
            Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => continue,
        };
        match received {
            Ok(Received::Request { id, scope, request }) => {
                handler.prepare(&request).await;
                if let Err(violation) = handler.request(id, scope, request) {
                    return Ended::Violation(violation);
                }
            }
            Ok(Received::Cancel { id }) => handler.cancel(id),
            Ok(other) => link.stream_event(other),
            Err(violation) => return Ended::Violation(violation),
        }
        link.wake.notify_one();
        while link.lock().connection.control_backlog() > MAX_BACKLOG && !link.is_mute() {
            link.drained.notified().await;
        }
    }
}

/// What a failure to read means: WebSocket's own rules have their close codes, too.
fn failed(error: &tungstenite::Error) -> Ended {
    let close_code = match error {
        tungstenite::Error::Capacity(_) => 1009,
        tungstenite::Error::Utf8(_) => 1007,
        tungstenite::Error::Protocol(ProtocolError::ResetWithoutClosingHandshake) => return Ended::Closed,
        tungstenite::Error::Protocol(_) => 1002,
        _ => return Ended::Closed,
    };
    Ended::Violation(Violation { close_code, reason: error.to_string() })
}

async fn write(link: &Link, sink: &mut (impl Sink<Message, Error = tungstenite::Error> + Unpin)) -> Ended {
    let mut chunk = vec![0; HEADER_BYTES + CHUNK_BYTES];
    loop {
        match write_batch(link, sink, &mut chunk).await {
            Ok(0) => {
                link.drained.notify_one();
                link.wake.notified().await;
            }
            Ok(_) => {}
            // The reader learns of the end too, after what the client still said, and must not wait for us.
            Err(_) => {
                link.mute();
                return pending().await;
            }
        }
    }
}

/// Sends what there is to send, up to about a chunk, in one write; returns how many bytes that was. No more is chosen
/// before it is in the socket, so control never waits behind more than one batch.
async fn write_batch(
    link: &Link,
    sink: &mut (impl Sink<Message, Error = tungstenite::Error> + Unpin),
    chunk: &mut [u8],
) -> Result<usize, tungstenite::Error> {
    let mut batch = 0;
    while batch < CHUNK_BYTES
        && let Some(outgoing) = link.next_outgoing()
    {
        let message = match outgoing {
            Outgoing::Control(text) => Message::text(text),
            Outgoing::Turn { stream, source, max_bytes } => {
                match link.take_turn(stream, &*source, max_bytes, chunk) {
                    Some(bytes) => Message::Binary(bytes),
                    None => continue,
                }
            }
        };
        batch += message.len();
        sink.feed(message).await?;
    }
    if batch > 0 {
        sink.flush().await?;
    }
    Ok(batch)
}

/// What is sent next.
enum Outgoing {
    Control(String),
    Turn { stream: StreamId, source: Arc<dyn Outflow>, max_bytes: usize },
}

impl Link {
    fn next_answer(&self) -> Option<String> {
        self.lock().connection.next_control()
    }

    fn next_outgoing(&self) -> Option<Outgoing> {
        let mut core = self.lock();
        if let Some(text) = core.connection.next_control() {
            return Some(Outgoing::Control(text));
        }
        while let Some(turn) = core.connection.next_turn() {
            if let Some((_, source)) = core.sources.get(&turn.stream) {
                let source = source.clone();
                return Some(Outgoing::Turn { stream: turn.stream, source, max_bytes: turn.max_bytes });
            }
            core.connection.idle(turn.stream);
        }
        None
    }

    /// Asks the source whose turn it is: no queue stands between a pipe and the socket.
    fn take_turn(
        &self,
        stream: StreamId,
        source: &dyn Outflow,
        max_bytes: usize,
        chunk: &mut [u8],
    ) -> Option<Bytes> {
        let taken = source.take(&mut chunk[HEADER_BYTES..HEADER_BYTES + max_bytes]);
        let mut core = self.lock();
        let (len, fin) = match taken {
            Taken::Bytes(len) => (len, false),
            Taken::End => (0, true),
            Taken::Nothing => {
                core.connection.idle(stream);
                return None;
            }
        };
        if fin {
            core.sources.remove(&stream);
        }
        let header = core.connection.frame(stream, len, fin, true)?;
        chunk[..HEADER_BYTES].copy_from_slice(&header.encode());
        Some(Bytes::copy_from_slice(&chunk[..HEADER_BYTES + len]))
    }

    /// What a client did with a stream.
    fn stream_event(&self, received: Received) {
        let mut core = self.lock();
        match received {
            Received::Data { stream, payload, fin, .. } => {
                let sink = if fin { core.sinks.remove(&stream) } else { core.sinks.get(&stream).cloned() };
                drop(core);
                if let Some((_, sink)) = sink {
                    sink.push(payload, fin);
                }
            }
            Received::Reset { stream, .. } => {
                if let Some((_, sink)) = core.sinks.remove(&stream) {
                    sink.abandon();
                }
            }
            Received::Stopped { stream, .. } => {
                if let Some((_, source)) = core.sources.remove(&stream) {
                    source.stop();
                }
            }
            _ => {}
        }
    }
}
