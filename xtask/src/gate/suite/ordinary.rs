//! An ordinary user made up for one run: a uid that nobody has, and a folder with all it may see.
//!
//! ```text
//! /tmp/agentvm-gate-12345/   root's, readable by all; locked while its run lasts
//!     bin/                   the test executables and the programs
//!     source/                the files of the workspace: golden vectors, fixtures
//!     home/ tmp/ run/        the user's own: HOME, TMPDIR, XDG_RUNTIME_DIR
//! ```

mod account;

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::child;
use crate::gate::build::Built;

const LIMIT: Duration = Duration::from_secs(5 * 60);
const OWN: [(&str, &str); 3] = [("HOME", "home"), ("TMPDIR", "tmp"), ("XDG_RUNTIME_DIR", "run")];

pub(super) struct Ordinary {
    uid: u32,
    folder: PathBuf,
    /// Held until the end, so that another gate on this machine takes another uid.
    _lock: File,
}

impl Ordinary {
    /// Takes a free uid and lays out its folder.
    pub(super) fn furnish(built: &Built, root: &Path) -> Result<Self> {
        let (uid, folder, lock) = account::claim()?;
        let ordinary = Self { uid, folder, _lock: lock };
        ordinary.copy_executables(built).context("the test executables could not be copied")?;
        ordinary.copy_source(root).context("the source tree could not be copied")?;
        // Whatever the umask and the clone's modes are.
        child::succeed(Command::new("chmod").args(["-R", "a+rX,go-w"]).arg(&ordinary.folder), LIMIT)?;
        for (_, name) in OWN {
            let own = ordinary.folder.join(name);
            fs::create_dir(&own)?;
            fs::set_permissions(&own, Permissions::from_mode(0o700))?;
            chown(&own, Some(uid), Some(uid))?;
        }
        ordinary.prove_unprivileged()?;
        Ok(ordinary)
    }

    pub(super) fn uid(&self) -> u32 {
        self.uid
    }

    pub(super) fn binaries(&self) -> PathBuf {
        self.folder.join("bin")
    }

    pub(super) fn source(&self) -> PathBuf {
        self.folder.join("source")
    }

    /// Runs a program as this user, in an environment that holds nothing of the caller's.
    pub(super) fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        // As root, `uid` drops the supplementary groups too.
        command.uid(self.uid).gid(self.uid).env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin");
        command.envs(OWN.map(|(variable, name)| (variable, self.folder.join(name))));
        command
    }

    /// Sees to it that nothing runs as this user any more; a complaint if something did not end by itself.
    pub(super) fn end_stragglers(&self) -> Result<Option<String>> {
        account::end_stragglers(self.uid)
    }

    fn copy_executables(&self, built: &Built) -> Result<()> {
        let folder = self.binaries();
        fs::create_dir(&folder)?;
        for executable in built.tests().chain(built.binaries()) {
            fs::copy(&executable.path, folder.join(executable.file_name()))?;
        }
        Ok(())
    }

    /// Copies what git knows or would take; a file that is deleted but not committed so is passed over.
    fn copy_source(&self, root: &Path) -> Result<()> {
        let mut git = Command::new("git");
        git.current_dir(root).args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
        for name in child::stdout_of(&mut git, LIMIT)?.split_terminator('\0') {
            let (from, to) = (root.join(name), self.source().join(name));
            if from.is_file() {
                fs::create_dir_all(to.parent().context("a file has no folder")?)?;
                fs::copy(from, to)?;
            }
        }
        Ok(())
    }

    /// A run as root under another name would prove nothing: the kernel must say that all privilege is gone.
    fn prove_unprivileged(&self) -> Result<()> {
        let status = child::stdout_of(self.command(Path::new("/bin/cat")).arg("/proc/self/status"), LIMIT)?;
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or("?");
        let (uid, ids) = (self.uid.to_string(), [field("Uid:"), field("Gid:")]);
        let is_ordinary = ids.iter().all(|four| four.split_whitespace().all(|id| id == uid))
            && field("Groups:").trim().is_empty()
            && field("CapEff:").trim().bytes().all(|digit| digit == b'0');
        ensure!(is_ordinary, "a process as uid {uid} still has privileges:\n{status}");
        Ok(())
    }
}

impl Drop for Ordinary {
    fn drop(&mut self) {
        // Best effort: what stays is swept by the next run that takes this uid.
        let _ = fs::remove_dir_all(&self.folder);
    }
}
