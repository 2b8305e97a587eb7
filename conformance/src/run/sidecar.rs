//! The sidecar that clients of the protocol connect to: one for a whole run, as `agentvm-sidecar serve` is.

use std::{
    env,
    fs::{self, DirBuilder},
    io::Write as _,
    os::unix::{
        fs::{DirBuilderExt as _, OpenOptionsExt as _},
        net::UnixStream,
    },
    path::PathBuf,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};

const START_LIMIT: Duration = Duration::from_secs(10);
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// It and the folder of its socket and its token, both gone when dropped.
pub(super) struct Sidecar {
    child: Child,
    folder: PathBuf,
}

impl Sidecar {
    /// Starts it, and returns once it listens. Call it on a thread that lives as long: the kernel ends it with that.
    pub(super) fn start() -> Result<Self> {
        let folder = env::temp_dir().join(format!("agentvm-conformance-{}", std::process::id()));
        DirBuilder::new().mode(0o700).create(&folder)?;
        let token = folder.join("token");
        let mut file = fs::File::options().write(true).create_new(true).mode(0o600).open(&token)?;
        // Nobody else enters the folder, so that this need not be secret.
        writeln!(file, "the token of the conformance run")?;
        let mut listen = std::ffi::OsString::from("unix:");
        listen.push(folder.join("socket"));
        let child = Command::new(env::current_exe()?.with_file_name("conformance-sidecar"))
            .args(["serve", "--listen"])
            .arg(listen)
            .arg("--token-file")
            .arg(token)
            .stdin(Stdio::null())
            .spawn()
            .context("the sidecar did not start")?;
        let mut sidecar = Self { child, folder };
        sidecar.await_listening()?;
        Ok(sidecar)
    }

    /// Tells a driver where it is.
    pub(super) fn introduce(&self, driver: &mut Command) {
        driver.env("AGENTVM_SOCKET", self.folder.join("socket"));
        driver.env("AGENTVM_TOKEN_FILE", self.folder.join("token"));
    }

    fn await_listening(&mut self) -> Result<()> {
        let begun = Instant::now();
        while UnixStream::connect(self.folder.join("socket")).is_err() {
            ensure!(self.child.try_wait()?.is_none(), "the sidecar ended before it listened");
            ensure!(begun.elapsed() < START_LIMIT, "the sidecar does not listen after {START_LIMIT:?}");
            thread::sleep(LOOK_AGAIN);
        }
        Ok(())
    }
}

impl Drop for Sidecar {
    fn drop(&mut self) {
        // Best effort, all of it: what ends here is of use to nobody any more.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}
