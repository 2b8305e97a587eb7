//! Serving the client that launched this process.

use std::{io, os::unix::net::UnixStream as StdUnixStream, process::ExitCode};

use agentvm_wire::session::SUBPROTOCOL;
use tokio::net::UnixStream;
use tokio_tungstenite::{
    WebSocketStream, accept_hdr_async_with_config,
    tungstenite::{
        self,
        handshake::server::{ErrorResponse, Request, Response},
        http::{HeaderValue, StatusCode, header::SEC_WEBSOCKET_PROTOCOL},
        protocol::WebSocketConfig,
    },
};

use crate::{launch, session, zygote::Zygote};

/// Twice the largest message a client may send: anything above closes the connection unread.
const MAX_MESSAGE_BYTES: usize = 32 << 20;
/// Bytes asked of the socket at once. Each read clears that much memory first.
const READ_BUFFER_BYTES: usize = 32 << 10;

/// Serves the socket inherited as standard input until it closes; every VM is gone when this returns.
pub(crate) fn serve_inherited() -> ExitCode {
    match try_serve() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Standard error is the launching client's to show.
            eprintln!("agentvm-sidecar: {error}");
            ExitCode::FAILURE
        }
    }
}

#[derive(Debug, thiserror::Error)]
enum ServeError {
    #[error("standard input is not the socket of a client that launched this process: {0}")]
    NoSocket(io::Error),
    #[error(transparent)]
    Zygote(#[from] crate::zygote::StartError),
    #[error("no runtime: {0}")]
    Runtime(io::Error),
    #[error("WebSocket handshake failed: {0}")]
    Handshake(tungstenite::Error),
}

/// The zygote comes first: before any thread, any runtime and any secret.
fn try_serve() -> Result<(), ServeError> {
    let socket = launch::take_standard_input().map(StdUnixStream::from).map_err(ServeError::NoSocket)?;
    socket.set_nonblocking(true).map_err(ServeError::NoSocket)?;
    let zygote = Zygote::start()?;
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(ServeError::Runtime)?;
    runtime.block_on(async {
        let socket = UnixStream::from_std(socket).map_err(ServeError::NoSocket)?;
        let socket = accept(socket).await.map_err(ServeError::Handshake)?;
        session::serve(zygote, socket).await;
        Ok(())
    })
}

async fn accept(socket: UnixStream) -> Result<WebSocketStream<UnixStream>, tungstenite::Error> {
    let config = WebSocketConfig::default()
        .read_buffer_size(READ_BUFFER_BYTES)
        .max_message_size(Some(MAX_MESSAGE_BYTES))
        .max_frame_size(Some(MAX_MESSAGE_BYTES));
    accept_hdr_async_with_config(socket, choose_subprotocol, Some(config)).await
}

/// Refuses a client that does not offer our subprotocol; one that carries an `Origin` is a browser, never ours.
#[expect(clippy::result_large_err, reason = "the signature is tungstenite's")]
fn choose_subprotocol(request: &Request, mut response: Response) -> Result<Response, ErrorResponse> {
    let refuse = |status, reason: &str| {
        let mut refusal = ErrorResponse::new(Some(reason.to_owned()));
        *refusal.status_mut() = status;
        Err(refusal)
    };
    if request.headers().contains_key("origin") {
        return refuse(StatusCode::FORBIDDEN, "origin is not allowed");
    }
    let offered = request.headers().get_all(SEC_WEBSOCKET_PROTOCOL);
    let offers = |value: &HeaderValue| {
        value.to_str().is_ok_and(|text| text.split(',').any(|p| p.trim() == SUBPROTOCOL))
    };
    if !offered.iter().any(offers) {
        return refuse(StatusCode::BAD_REQUEST, "subprotocol agentvm.v1 is required");
    }
    response.headers_mut().insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(SUBPROTOCOL));
    Ok(response)
}
