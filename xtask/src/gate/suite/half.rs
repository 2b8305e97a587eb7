//! One half of the test run: who runs the executables, from where, and in which environment.

use std::fs;
use std::num::NonZero;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::ordinary::Ordinary;
use crate::cargo::forget_xtask;
use crate::gate::build::{Built, Executable};

/// The same settings for both halves: a run must not write into the source tree, and a failure must tell its place.
const SETTINGS: [(&str, &str); 3] =
    [("INSTA_UPDATE", "no"), ("PROPTEST_DISABLE_FAILURE_PERSISTENCE", "1"), ("RUST_BACKTRACE", "1")];

pub(in crate::gate) struct Half {
    uid: u32,
    /// Where the programs are.
    binaries: PathBuf,
    /// The workspace, or its copy.
    source: PathBuf,
    /// Set if it runs copies, in an environment of their own.
    ordinary: Option<Ordinary>,
}

impl Half {
    /// The executables where cargo left them, in the caller's environment.
    pub(in crate::gate) fn caller(built: &Built, root: &Path) -> Result<Self> {
        let uid = fs::metadata("/proc/self").context("/proc does not say who I am")?.uid();
        Ok(Self { uid, binaries: built.binary_folder()?.to_owned(), source: root.to_owned(), ordinary: None })
    }

    /// Copies of them, as a user made up for this run.
    pub(in crate::gate) fn ordinary(built: &Built, root: &Path) -> Result<Self> {
        let user = Ordinary::furnish(built, root)?;
        Ok(Self { uid: user.uid(), binaries: user.binaries(), source: user.source(), ordinary: Some(user) })
    }

    pub(in crate::gate) fn is_root(&self) -> bool {
        self.uid == 0
    }

    pub(in crate::gate) fn name(&self) -> String {
        if self.is_root() { "as root".to_owned() } else { format!("as uid {}", self.uid) }
    }

    /// The command that runs an executable in this half, in the folder of its package as cargo does.
    pub(in crate::gate) fn command(&self, executable: &Executable) -> Command {
        let mut command = if let Some(user) = &self.ordinary {
            user.command(&self.binaries.join(executable.file_name()))
        } else {
            let mut command = Command::new(&executable.path);
            forget_xtask(&mut command);
            command
        };
        let package = self.source.join(&executable.package);
        command
            .current_dir(&package)
            .env("CARGO_MANIFEST_DIR", package)
            .env("INSTA_WORKSPACE_ROOT", &self.source)
            .env("AGENTVM_TEST_BIN_DIR", &self.binaries)
            .env("RUST_TEST_THREADS", test_threads().to_string())
            .envs(SETTINGS);
        command
    }

    /// A complaint if tests left processes behind; only a user of their own makes that certain.
    pub(in crate::gate) fn left_behind(&self) -> Result<Option<String>> {
        self.ordinary.as_ref().map_or(Ok(None), Ordinary::end_stragglers)
    }
}

/// How many tests of one executable run at once: more than there are processors, as many of them mostly wait.
fn test_threads() -> usize {
    let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
    processors * 2
}
