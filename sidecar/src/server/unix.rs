//! Serving a Unix socket: any number of clients of the same user that know the token, each with a session of its own.

use std::{
    fs, io,
    os::unix::{fs::FileTypeExt as _, net::UnixStream as StdUnixStream},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use agentvm_socket::Socket;
use rustix::fs::Mode;
use tokio::{
    net::{UnixListener, UnixStream},
    signal::unix::{SignalKind, signal},
    sync::{OwnedSemaphorePermit, Semaphore},
    task::JoinSet,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{
    ServeError, accept, run,
    token::Token,
    unproven::{Proof, Unproven},
};
use crate::{
    isolation::rlimits,
    session::{self, Admission, Policy},
    zygote::Zygote,
};

/// How long a client may take until its session is open.
const GREETING_LIMIT: Duration = Duration::from_secs(5);
/// Connections that may be in that state at once; further ones wait in the listener's queue.
const MAX_UNPROVEN: usize = 64;
/// How long after a failed accept the next is tried.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// How long sessions and their VMs may take to end once the server is asked to.
const LEAVING_LIMIT: Duration = Duration::from_secs(5);

/// What a Unix listener needs.
#[derive(Debug, Clone)]
pub struct UnixListenerConfig {
    /// Where to listen; the socket gets mode 0600. A socket left behind by a dead sidecar is replaced, anything else
    /// is an error.
    pub path: PathBuf,
    /// What every client must know.
    pub token: Token,
    /// What clients may ask for.
    pub policy: Policy,
}

/// Serves until SIGTERM or SIGINT. Then clients are told that the sidecar shuts down (close code 1001) and their VMs end;
/// they are gone when this returns, or are being killed by the kernel if that takes more than 5 s. Call it before any thread or runtime exists.
pub fn serve_unix(config: &UnixListenerConfig) -> Result<(), ServeError> {
    rlimits::adapt_sidecar();
    let zygote = Zygote::start();
    if config.policy.is_sandbox_only() {
        zygote.sandbox()?;
    }
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
    let strangers = Arc::new(Semaphore::new(MAX_UNPROVEN));
    let leave = CancellationToken::new();
    let mut sessions = JoinSet::new();
    loop {
        tokio::select! {
            (socket, place) = admit(listener, &strangers) => {
                sessions.spawn(greet(socket, place, zygote.clone(), config.clone(), leave.clone()));
            }
            Some(_) = sessions.join_next() => {}
            _ = terminated.recv() => break,
            _ = interrupted.recv() => break,
        }
    }
    leave.cancel();
    let all_ended = async { while sessions.join_next().await.is_some() {} };
    if timeout(LEAVING_LIMIT, all_ended).await.is_err() {
        tracing::warn!("VMs did not end in time; the kernel ends them with this process");
    }
    Ok(())
}

/// The next client of our own user, as soon as there is a place for a stranger.
async fn admit(listener: &UnixListener, strangers: &Arc<Semaphore>) -> (Socket, OwnedSemaphorePermit) {
    loop {
        let place = strangers.clone().acquire_owned().await.expect("nobody closes the semaphore");
        match accept_own(listener).await {
            Ok(Some(socket)) => return (socket, place),
            Ok(None) => tracing::warn!("a client of another user was turned away"),
            Err(error) => {
                tracing::warn!(%error, "a client could not be accepted");
                // Out of descriptors, most likely: those that end make room.
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// The next client, if it is of our own user.
async fn accept_own(listener: &UnixListener) -> io::Result<Option<Socket>> {
    let (socket, _) = listener.accept().await?;
    if is_own_user(&socket) { Socket::new(socket.into_std()?).map(Some) } else { Ok(None) }
}

/// A client's whole visit.
async fn greet(
    socket: Socket,
    place: OwnedSemaphorePermit,
    zygote: Zygote,
    config: UnixListenerConfig,
    leave: CancellationToken,
) {
    let UnixListenerConfig { token, policy, .. } = config;
    let proof = Proof::awaited(place);
    let handshake = timeout(GREETING_LIMIT, accept(Unproven::new(socket, proof.clone())));
    let greeted = tokio::select! {
        greeted = handshake => greeted,
        () = leave.cancelled() => return,
    };
    let Ok(Ok(socket)) = greeted else { return };
    let admission = Admission::Token { token, limit: GREETING_LIMIT, proof };
    session::serve(zygote, socket, admission, policy, leave).await;
}

fn is_own_user(socket: &UnixStream) -> bool {
    socket.peer_cred().is_ok_and(|peer| peer.uid() == rustix::process::geteuid().as_raw())
}
