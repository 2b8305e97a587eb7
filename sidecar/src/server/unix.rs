//! Serving a Unix socket: any number of clients of the same user that know the token, each with a session of its own.

use std::{
    fs, io,
    os::unix::{fs::FileTypeExt as _, net::UnixStream as StdUnixStream},
    path::{Path, PathBuf},
    time::Duration,
};

use rustix::fs::Mode;
use tokio::{
    net::{UnixListener, UnixStream},
    signal::unix::{SignalKind, signal},
    task::JoinSet,
    time::timeout,
};

use super::{
    ServeError, accept, run,
    token::Token,
    unproven::{Proof, Unproven},
};
use crate::{
    isolation::rlimits,
    session::{self, Admission},
    zygote::Zygote,
};

/// How long a client may take until its session is open.
const GREETING_LIMIT: Duration = Duration::from_secs(5);
/// Connections that may be in that state at once; further ones wait in the listener's queue.
const MAX_UNPROVEN: usize = 64;

/// What a Unix listener needs.
#[derive(Debug, Clone)]
pub struct UnixListenerConfig {
    /// Where to listen; the socket gets mode 0600. A socket left behind by a dead sidecar is replaced, anything else
    /// is an error.
    pub path: PathBuf,
    /// What every client must know.
    pub token: Token,
}

/// Serves until SIGTERM or SIGINT; every VM is gone when this returns. Call it before any thread or runtime exists.
pub fn serve_unix(config: &UnixListenerConfig) -> Result<(), ServeError> {
    rlimits::adapt_sidecar();
    let zygote = Zygote::start()?;
    run(async {
        let fail = |error| ServeError::Listen { path: config.path.display().to_string(), error };
        let listener = bind(&config.path).map_err(fail)?;
        let served = listen(&listener, &zygote, config).await.map_err(fail);
        // It is ours: nobody else listens there while we do.
        let _ = fs::remove_file(&config.path);
        served
    })
}

/// The socket is never visible with a mode that lets another user in.
fn bind(path: &Path) -> io::Result<UnixListener> {
    if fs::symlink_metadata(path).is_ok_and(|meta| meta.file_type().is_socket())
        && StdUnixStream::connect(path).is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
    {
        fs::remove_file(path)?;
    }
    let before = rustix::process::umask(Mode::RWXG | Mode::RWXO | Mode::XUSR);
    let listener = UnixListener::bind(path);
    rustix::process::umask(before);
    listener
}

async fn listen(listener: &UnixListener, zygote: &Zygote, config: &UnixListenerConfig) -> io::Result<()> {
    let (mut terminated, mut interrupted) =
        (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let mut greetings = JoinSet::new();
    let mut sessions = JoinSet::new();
    loop {
        tokio::select! {
            connected = listener.accept(), if greetings.len() < MAX_UNPROVEN => match connected {
                Ok((socket, _)) if is_own_user(&socket) => {
                    let proof = Proof::default();
                    let socket = Unproven::new(socket, proof.clone());
                    greetings.spawn(async move { Some((timeout(GREETING_LIMIT, accept(socket)).await.ok()?.ok()?, proof)) });
                }
                Ok(_) => tracing::warn!("a client of another user was turned away"),
                // Out of descriptors, most likely: those that end make room.
                Err(error) => tracing::warn!(%error, "a client could not be accepted"),
            },
            Some(greeted) = greetings.join_next() => {
                if let Ok(Some((socket, proof))) = greeted {
                    let admission = Admission::Token { token: config.token.clone(), limit: GREETING_LIMIT, proof };
                    sessions.spawn(session::serve(zygote.clone(), socket, admission));
                }
            }
            Some(_) = sessions.join_next() => {}
            _ = terminated.recv() => break,
            _ = interrupted.recv() => break,
        }
    }
    // Their VMs' sockets close with them, and init ends with its socket.
    sessions.shutdown().await;
    Ok(())
}

fn is_own_user(socket: &UnixStream) -> bool {
    socket.peer_cred().is_ok_and(|peer| peer.uid() == rustix::process::geteuid().as_raw())
}
