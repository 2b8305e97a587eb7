//! How bytes get to a sidecar and back.

use std::{
    fmt, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use agentvm_socket::Socket;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::UnixStream,
};

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
/// current-thread runtime, with time and I/O enabled. The stream is polled within that runtime too, mostly on its thread,
/// and to write also on a thread that calls the SDK, so no poll may block.
#[async_trait::async_trait]
pub trait Transport: Send + Sync + fmt::Debug {
    /// Opens the stream; called once per [`Sidecar`](crate::Sidecar).
    async fn connect(&self) -> io::Result<Box<dyn Duplex>>;
}

/// What a connection is made from.
#[derive(Debug)]
pub(crate) enum Connector {
    Launch(launch::Program),
    Unix(PathBuf, Token),
    Transport(Arc<dyn Transport>),
}

/// The secret a listening sidecar asks for. Never shown.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Token(String);

impl<T: Into<String>> From<T> for Token {
    fn from(token: T) -> Self {
        Self(token.into())
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

impl Connector {
    pub(crate) async fn connect(self) -> Result<(Box<dyn Duplex>, Option<Launched>), ClientError> {
        match self {
            Self::Launch(program) => {
                let (socket, launched) = program.launch()?;
                Ok((Box::new(socket), Some(launched)))
            }
            Self::Unix(path, _) => match connect_unix(&path).await {
                Ok(socket) => Ok((Box::new(socket), None)),
                Err(error) => Err(not_connected(&format!("unix:{}", path.display()), error)),
            },
            Self::Transport(transport) => match transport.connect().await {
                Ok(socket) => Ok((socket, None)),
                Err(error) => Err(not_connected("transport", error)),
            },
        }
    }

    /// What `hello` must carry.
    pub(crate) fn token(&self) -> Option<String> {
        match self {
            Self::Unix(_, Token(token)) => Some(token.clone()),
            Self::Launch(_) | Self::Transport(_) => None,
        }
    }
}

async fn connect_unix(path: &Path) -> io::Result<Socket> {
    Socket::new(UnixStream::connect(path).await?.into_std()?)
}

fn not_connected(what: &str, error: io::Error) -> ClientError {
    ClientError::Disconnected {
        reason: format!("{what} did not connect: {error}"),
        source: Some(Arc::new(error)),
    }
}
