//! Where clients come from: the socket of the program that launched this process, or a listener on a Unix socket.
//!
//! Either way the zygote comes first: before any thread, any runtime and any secret. Everything of the server then runs
//! on one thread.

mod inherited;
mod token;
mod unix;
mod unproven;

use std::{future::Future, io};

use agentvm_wire::session::SUBPROTOCOL;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_tungstenite::{
    WebSocketStream, accept_hdr_async_with_config,
    tungstenite::{
        self,
        handshake::server::{ErrorResponse, Request, Response},
        http::{HeaderValue, StatusCode, header::SEC_WEBSOCKET_PROTOCOL},
        protocol::WebSocketConfig,
    },
};

pub use crate::session::Policy;
pub(crate) use inherited::serve_inherited;
pub use token::{Token, TokenError};
pub use unix::{UnixListenerConfig, serve_unix};
pub(crate) use unproven::Proof;

/// Twice the largest message a client may send: anything above closes the connection unread.
const MAX_MESSAGE_BYTES: usize = 32 << 20;
/// Bytes asked of the socket at once. Each read clears that much memory first.
const READ_BUFFER_BYTES: usize = 32 << 10;

/// Why a server does not start, or ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// This process was not launched by a client.
    #[error("standard input is not the socket of a client that launched this process: {0}")]
    NoSocket(io::Error),
    /// VMs cannot be built here.
    #[error(transparent)]
    Zygote(#[from] crate::zygote::StartError),
    /// The system has no room for a runtime.
    #[error("no runtime: {0}")]
    Runtime(io::Error),
    /// The client that launched this process does not speak WebSocket.
    #[error("WebSocket handshake failed: {0}")]
    Handshake(Box<tungstenite::Error>),
    /// The listener could not be made.
    #[error("cannot listen on {path}: {error}")]
    Listen {
        /// Where.
        path: String,
        /// Why.
        error: io::Error,
    },
}

pub(crate) fn run<T>(server: impl Future<Output = Result<T, ServeError>>) -> Result<T, ServeError> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(ServeError::Runtime)?
        .block_on(server)
}

async fn accept<S>(socket: S) -> Result<WebSocketStream<S>, tungstenite::Error>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
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
