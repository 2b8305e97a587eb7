//! The thread that owns a connection: connects, greets, reads, writes, and reports the end.
//!
//! It has a current-thread runtime of its own: no user runtime owns it, so a shared connection does not die with the
//! first `#[tokio::test]`, and a blocked user thread cannot stall it. Reading never awaits writing: the two are
//! polled side by side.

use std::{future::pending, io, pin::pin, sync::Arc, thread, time::Duration};

use agentvm_wire::{
    connection::Violation,
    message::{Request, Response, Scope},
    session::{BUILD, Hello, PROTOCOL, Peer, SUBPROTOCOL},
};
use futures_util::{FutureExt as _, Stream, StreamExt as _};
use tokio::{
    sync::oneshot,
    time::{sleep, timeout},
};
use tokio_tungstenite::{
    WebSocketStream, client_async_with_config,
    tungstenite::{
        self, ClientRequestBuilder, Message,
        protocol::{CloseFrame, WebSocketConfig},
    },
};

use super::{
    Link,
    writer::{Batch, Opened},
};
use crate::{
    error::ClientError,
    sidecar::launch::Launched,
    transport::{Connector, Duplex},
};

/// How long the WebSocket handshake and `hello` may take, each.
const GREETING_LIMIT: Duration = Duration::from_secs(10);
/// How long the last words may take: ours to leave, and the sidecar's to be read once writing has failed.
pub(super) const CLOSE_LIMIT: Duration = Duration::from_secs(1);
/// Twice the largest message the sidecar may send: anything above is not read.
const MAX_MESSAGE_BYTES: usize = 32 << 20;
/// Bytes asked of the socket at once. Each read clears that much memory first.
const READ_BUFFER_BYTES: usize = 32 << 10;

type Ready = oneshot::Sender<Result<(), ClientError>>;

/// Owns the connection: dropping it ends the session with all its VMs.
#[derive(Debug)]
pub(crate) struct Driver(Arc<Link>);

impl Driver {
    pub(crate) fn link(&self) -> &Arc<Link> {
        &self.0
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Connects on a thread of its own and returns once the session is open. Dropping the future closes it again.
pub(crate) async fn start(connector: Connector) -> Result<Driver, ClientError> {
    let (ready, opened) = oneshot::channel();
    let driver = Driver(Arc::new(Link::new()));
    let link = driver.link().clone();
    thread::Builder::new()
        .name("agentvm-link".to_owned())
        .spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            match runtime {
                Ok(runtime) => runtime.block_on(serve(connector, &link, ready)),
                Err(error) => drop(ready.send(Err(disconnected("no runtime for the connection", error)))),
            }
        })
        .map_err(|error| disconnected("no thread for the connection", error))?;
    match opened.await {
        Ok(opened) => opened.map(|()| driver),
        Err(_) => Err(ClientError::disconnected("the connection's thread ended")),
    }
}

/// The connection's whole life.
async fn serve(connector: Connector, link: &Arc<Link>, ready: Ready) {
    let token = connector.token();
    let connected = tokio::select! {
        connected = connector.connect() => connected,
        () = link.closing.notified() => Err(ClientError::Disposed),
    };
    let (socket, mut launched) = match connected {
        Ok(connected) => connected,
        Err(error) => return drop(ready.send(Err(error))),
    };
    if let Some(pid) = launched.as_ref().and_then(Launched::pid) {
        link.pid.get_or_init(|| pid);
    }
    let mut ready = Some(ready);
    let mut cause = tokio::select! {
        cause = session(link, socket, token, &mut ready) => cause,
        () = overdue(link) => ClientError::Disposed,
        () = link.keep_time() => unreachable!("it never ends"),
        () = forward_stderr(launched.as_mut()) => unreachable!("it is pending for ever"),
    };
    if let Some(launched) = &mut launched {
        cause = launched.explain(cause, ready.is_some()).await;
    }
    link.fail(cause.clone());
    if let Some(ready) = ready {
        drop(ready.send(Err(cause)));
    }
    if let Some(launched) = launched {
        launched.reap().await;
    }
}

/// Resolves if the link was closed and still is not: the sidecar does not read, or does not answer.
async fn overdue(link: &Link) {
    link.closing.notified().await;
    sleep(CLOSE_LIMIT).await;
}

async fn forward_stderr(launched: Option<&mut Launched>) {
    if let Some(launched) = launched {
        launched.forward_stderr().await;
    }
    pending::<()>().await;
}

/// Greets, then carries messages until the connection ends; returns why it did.
async fn session(
    link: &Arc<Link>,
    socket: Box<dyn Duplex>,
    token: Option<String>,
    ready: &mut Option<Ready>,
) -> ClientError {
    let socket = match timeout(GREETING_LIMIT, handshake(socket)).await {
        Ok(Ok(socket)) => socket,
        Ok(Err(error)) => return websocket_error("WebSocket handshake failed", error),
        Err(_) => return ClientError::disconnected("no WebSocket handshake within 10 s"),
    };
    let (sink, stream) = socket.split();
    let writer = link.writer.open(sink);
    let mut greeting = pin!(greet(link, token, ready).fuse());
    let end = tokio::select! {
        end = read(link, stream) => end,
        end = write(link, &writer) => end,
        Err(error) = &mut greeting => End::Cause(error),
    };
    // A sidecar that turns a client away says why, and closes in the same breath.
    if let Some(Err(error)) = greeting.now_or_never() {
        return error;
    }
    match end {
        End::Cause(cause) => cause,
        End::Close => {
            writer.close(CloseFrame { code: 1000.into(), reason: "done".into() }).await;
            ClientError::Disposed
        }
        End::Violation(violation) => {
            let reason = violation.reason.as_str().into();
            writer.close(CloseFrame { code: violation.close_code.into(), reason }).await;
            ClientError::disconnected(format!("sidecar broke the protocol: {violation}"))
        }
    }
}

/// Why reading or writing came to an end.
enum End {
    Cause(ClientError),
    /// Nobody needs the session any more, and all is said.
    Close,
    Violation(Violation),
}

async fn handshake(socket: Box<dyn Duplex>) -> Result<WebSocketStream<Box<dyn Duplex>>, tungstenite::Error> {
    let uri = "ws://agentvm/".parse().expect("a constant URI");
    let request = ClientRequestBuilder::new(uri).with_sub_protocol(SUBPROTOCOL);
    let config = WebSocketConfig::default()
        .read_buffer_size(READ_BUFFER_BYTES)
        .max_message_size(Some(MAX_MESSAGE_BYTES))
        .max_frame_size(Some(MAX_MESSAGE_BYTES));
    Ok(client_async_with_config(request, socket, Some(config)).await?.0)
}

/// Opens the session and hands its owner out.
async fn greet(
    link: &Arc<Link>,
    token: Option<String>,
    ready: &mut Option<Ready>,
) -> Result<(), ClientError> {
    let client = Peer {
        name: "agentvm-sdk".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        build: Some(BUILD.to_owned()),
    };
    let hello = Request::Hello(Hello { protocol_min: PROTOCOL, protocol_max: PROTOCOL, client, token });
    let answer = timeout(GREETING_LIMIT, link.call(Scope::SESSION, &hello)).await;
    let welcome = match answer {
        Ok(Ok(Response::Welcome(welcome))) => welcome,
        Ok(Ok(other)) => return Err(ClientError::unexpected("hello", &other)),
        Ok(Err(error)) => return Err(error),
        Err(_) => return Err(ClientError::disconnected("no answer to hello within 10 s")),
    };
    if let Some(sidecar) = welcome.sidecar.build.filter(|build| build != BUILD) {
        return Err(ClientError::BuildMismatch { client: BUILD.to_owned(), sidecar });
    }
    link.lock().connection.set_limits(welcome.limits);
    if let Some(ready) = ready.take() {
        // Whoever no longer waits has dropped the driver, which closes the session.
        drop(ready.send(Ok(())));
    }
    Ok(())
}

async fn read(
    link: &Arc<Link>,
    mut stream: impl Stream<Item = Result<Message, tungstenite::Error>> + Unpin,
) -> End {
    loop {
        let received = match stream.next().await {
            Some(Ok(Message::Text(text))) => link.receive_text(&text),
            Some(Ok(Message::Binary(bytes))) => link.receive_binary(bytes),
            Some(Ok(Message::Close(frame))) => return End::Cause(closed(frame)),
            Some(Ok(_)) => Ok(()),
            Some(Err(error)) => return End::Cause(websocket_error("connection lost", error)),
            None => return End::Cause(ClientError::disconnected("connection closed")),
        };
        if let Err(violation) = received {
            return End::Violation(violation);
        }
    }
}

async fn write(link: &Link, writer: &Opened<'_>) -> End {
    loop {
        match writer.batch(link).await {
            Ok(Batch::Empty) => link.wake.notified().await,
            Ok(Batch::Sent) => {}
            Ok(Batch::Close) => return End::Close,
            Err(error) => {
                // What the peer still said before it went, above all why, is the reader's to find.
                tracing::debug!(%error, "writing to the sidecar failed");
                sleep(CLOSE_LIMIT).await;
                return End::Cause(websocket_error("connection lost", error));
            }
        }
    }
}

fn closed(frame: Option<CloseFrame>) -> ClientError {
    let reason = match frame {
        Some(frame) => format!("sidecar closed the connection: {} {}", frame.code, frame.reason),
        None => "sidecar closed the connection".to_owned(),
    };
    ClientError::disconnected(reason)
}

fn websocket_error(what: &str, error: tungstenite::Error) -> ClientError {
    match error {
        tungstenite::Error::Io(error) => disconnected(what, error),
        error => ClientError::disconnected(format!("{what}: {error}")),
    }
}

fn disconnected(what: &str, error: io::Error) -> ClientError {
    ClientError::Disconnected { reason: format!("{what}: {error}"), source: Some(Arc::new(error)) }
}
