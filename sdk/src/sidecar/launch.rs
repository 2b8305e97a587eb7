//! Finding and launching a sidecar: a child with one end of a socket pair as its standard input, and nothing else of
//! ours: no port, no path, no token, a cleared environment, its own process group (Ctrl-C reaches the program only).

use std::{
    env, io,
    os::{
        fd::OwnedFd,
        unix::{fs::MetadataExt as _, net::UnixStream, process::ExitStatusExt as _},
    },
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    time::Duration,
};

use agentvm_socket::Socket;
use agentvm_wire::launch::{INHERITED_ARG, LAUNCHED_ENV, SIDECAR_ARG0, SIDECAR_ENV};
use tokio::{
    io::AsyncReadExt as _,
    process::{Child, ChildStderr, Command},
    time::timeout,
};

use crate::error::ClientError;

/// How much of the sidecar's standard error an error carries.
const TAIL_BYTES: usize = 4096;
/// How long an exit status is awaited once the connection is gone.
const STATUS_LIMIT: Duration = Duration::from_millis(500);
/// How long a sidecar may take to end once its connection is closed; then it is killed.
const REAP_LIMIT: Duration = Duration::from_secs(3);
/// Variables of the environment a launched sidecar keeps, beside `AGENTVM_*`.
const KEPT_VARIABLES: [&str; 4] = ["PATH", "HOME", "LANG", "RUST_LOG"];

/// The program to launch as sidecar.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Program(PathBuf);

impl Program {
    pub(crate) fn at(path: PathBuf) -> Self {
        Self(path)
    }

    /// The running program itself, found through the kernel so that a replaced file still matches.
    pub(crate) fn current() -> Self {
        Self(PathBuf::from("/proc/self/exe"))
    }

    /// `AGENTVM_SIDECAR`, beside the executable, one folder up, on `PATH`.
    pub(crate) fn find() -> Result<Self, ClientError> {
        if let Some(path) = env::var_os(SIDECAR_ENV) {
            return Ok(Self(path.into()));
        }
        let mut places = Vec::new();
        if let Ok(executable) = env::current_exe() {
            for folder in executable.ancestors().skip(1).take(2) {
                let candidate = folder.join(SIDECAR_ARG0);
                match check_owner(&candidate, folder) {
                    Ok(()) => return Ok(Self(candidate)),
                    Err(why) => places.push((candidate, why)),
                }
            }
        }
        for folder in env::split_paths(&env::var_os("PATH").unwrap_or_default()) {
            let candidate = folder.join(SIDECAR_ARG0);
            if candidate.is_file() {
                return Ok(Self(candidate));
            }
            places.push((candidate, "not there"));
        }
        Err(ClientError::SidecarNotFound { places })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Starts it; blocks for the time of a fork and an exec.
    pub(crate) fn launch(&self) -> Result<(Socket, Launched), ClientError> {
        self.try_launch().map_err(|error| ClientError::SidecarLaunch {
            status: format!("{}: {error}", self.0.display()),
            stderr_tail: String::new(),
        })
    }

    fn try_launch(&self) -> io::Result<(Socket, Launched)> {
        let (ours, theirs) = UnixStream::pair()?;
        let kept = env::vars_os().filter(|(key, _)| {
            let key = key.to_string_lossy();
            KEPT_VARIABLES.contains(&&*key) || key.starts_with("AGENTVM_")
        });
        let mut child = Command::new(&self.0)
            .arg0(SIDECAR_ARG0)
            .arg(INHERITED_ARG)
            .env_clear()
            .envs(kept)
            .env(LAUNCHED_ENV, "1")
            .current_dir("/")
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()?;
        let stderr = child.stderr.take();
        Ok((Socket::new(ours)?, Launched { child, stderr, tail: Vec::new() }))
    }
}

/// Only a file that nobody but root or this user could have put there is run unasked.
fn check_owner(file: &Path, folder: &Path) -> Result<(), &'static str> {
    let me = rustix::process::geteuid().as_raw();
    let safe = |path: &Path| {
        path.metadata().map(|meta| (meta.uid() == 0 || meta.uid() == me) && meta.mode() & 0o022 == 0)
    };
    match (safe(file), safe(folder)) {
        (Err(_), _) => Err("not there"),
        (Ok(true), Ok(true)) => Ok(()),
        _ => Err("another user may write it"),
    }
}

/// A launched sidecar.
#[derive(Debug)]
pub(crate) struct Launched {
    child: Child,
    stderr: Option<ChildStderr>,
    tail: Vec<u8>,
}

impl Launched {
    pub(crate) fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    /// Passes the sidecar's words on to `tracing` and keeps the last of them; returns at their end.
    pub(crate) async fn forward_stderr(&mut self) {
        let mut buffer = [0; 4096];
        while let Some(stderr) = &mut self.stderr {
            match stderr.read(&mut buffer).await {
                Ok(read) if read > 0 => {
                    let text = String::from_utf8_lossy(&buffer[..read]);
                    tracing::debug!(target: "agentvm::sidecar", "{}", text.trim_end());
                    self.tail.extend_from_slice(&buffer[..read]);
                    let excess = self.tail.len().saturating_sub(TAIL_BYTES);
                    self.tail.drain(..excess);
                }
                _ => self.stderr = None,
            }
        }
    }

    /// Why the connection really ended: if the sidecar has exited, that is the cause.
    pub(crate) async fn explain(&mut self, cause: ClientError, starting: bool) -> ClientError {
        if !matches!(cause, ClientError::Disconnected { .. }) {
            return cause;
        }
        let Some(status) = self.exited_within(STATUS_LIMIT).await else { return cause };
        // Its standard error may be held open by nobody else: the rest is there already.
        let _ = timeout(Duration::from_millis(100), self.forward_stderr()).await;
        let status = describe(status);
        let stderr_tail = String::from_utf8_lossy(&self.tail).into_owned();
        if starting {
            ClientError::SidecarLaunch { status, stderr_tail }
        } else {
            ClientError::SidecarExited { status, stderr_tail }
        }
    }

    /// Leaves no zombie behind: a sidecar ends by itself when its connection does, and is killed if it doesn't.
    pub(crate) async fn reap(mut self) {
        if self.exited_within(REAP_LIMIT).await.is_none() {
            tracing::warn!(pid = self.child.id(), "sidecar did not end with its connection: killing it");
            // It may have ended just now.
            let _ = self.child.kill().await;
        }
    }

    async fn exited_within(&mut self, limit: Duration) -> Option<ExitStatus> {
        timeout(limit, self.child.wait()).await.ok()?.ok()
    }
}

fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "unknown status".to_owned(),
    }
}
