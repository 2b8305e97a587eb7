//! How bytes get to a sidecar and back.

use std::{fmt, io, sync::Arc};

use tokio::io::{AsyncRead, AsyncWrite};

use crate::{
    error::ClientError,
    sidecar::launch::{self, Launched},
};

/// A connected byte stream in both directions.
pub trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// Opens a byte stream to a running sidecar; the SDK speaks WebSocket over it.
///
/// For sidecars reached in a way of your own (through SSH, a proxy, a test). `connect` runs on the connection's own
/// current-thread runtime, with time and I/O enabled.
#[async_trait::async_trait]
pub trait Transport: Send + Sync + fmt::Debug {
    /// Opens the stream; called once per [`Sidecar`](crate::Sidecar).
    async fn connect(&self) -> io::Result<Box<dyn Duplex>>;
}

/// What a connection is made from.
#[derive(Debug)]
pub(crate) enum Connector {
    Launch(launch::Program),
    Transport(Arc<dyn Transport>),
}

impl Connector {
    pub(crate) async fn connect(self) -> Result<(Box<dyn Duplex>, Option<Launched>), ClientError> {
        match self {
            Self::Launch(program) => {
                let (socket, launched) = program.launch()?;
                Ok((Box::new(socket), Some(launched)))
            }
            Self::Transport(transport) => match transport.connect().await {
                Ok(socket) => Ok((socket, None)),
                Err(error) => Err(ClientError::Disconnected {
                    reason: format!("transport did not connect: {error}"),
                    source: Some(Arc::new(error)),
                }),
            },
        }
    }
}
