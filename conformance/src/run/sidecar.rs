//! The sidecar that clients of the protocol connect to: one for a whole run, as `agentvm-sidecar serve` is.

use std::{
    ffi::OsString,
    fs,
    io::Write as _,
    os::unix::{fs::OpenOptionsExt as _, net::UnixStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};

use crate::role::Role;

const START_LIMIT: Duration = Duration::from_secs(10);
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// It, and where it listens; ended when dropped.
pub(super) struct Sidecar {
    child: Child,
    socket: PathBuf,
    token: PathBuf,
}

impl Sidecar {
    /// Starts it in a folder that nobody else enters, and returns once it listens. Call it on a thread that lives as
    /// long: the kernel ends it with that.
    pub(super) fn start(folder: &Path) -> Result<Self> {
        let (socket, token) = (folder.join("socket"), folder.join("token"));
        // It need not be secret.
        let mut file = fs::File::options().write(true).create_new(true).mode(0o600).open(&token)?;
        writeln!(file, "the token of the conformance run")?;
        let mut listen = OsString::from("unix:");
        listen.push(&socket);
        let child = Role::Sidecar
            .command()?
            .args(["serve", "--listen"])
            .arg(listen)
            .arg("--token-file")
            .arg(&token)
            .stdin(Stdio::null())
            .spawn()
            .context("the sidecar did not start")?;
        let mut sidecar = Self { child, socket, token };
        sidecar.await_listening()?;
        Ok(sidecar)
    }

    /// Tells a driver where it is.
    pub(super) fn introduce(&self, driver: &mut Command) {
        driver.env("AGENTVM_SOCKET", &self.socket).env("AGENTVM_TOKEN_FILE", &self.token);
    }

    fn await_listening(&mut self) -> Result<()> {
        let begun = Instant::now();
        while UnixStream::connect(&self.socket).is_err() {
            ensure!(self.child.try_wait()?.is_none(), "the sidecar ended before it listened");
            ensure!(begun.elapsed() < START_LIMIT, "the sidecar does not listen after {START_LIMIT:?}");
            thread::sleep(LOOK_AGAIN);
        }
        Ok(())
    }
}

impl Drop for Sidecar {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
