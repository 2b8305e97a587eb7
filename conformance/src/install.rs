//! The packages that targets need, installed as their lock files say.

use std::{fs, path::Path, process::Command};

use crate::target::Target;

/// The npm that installs, brought by the one on PATH: Debian's own cannot read a lock file with overrides.
const NPM: &str = "npm@10.9.9";

/// Why nothing can be run on a target here.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NotRun(String);

/// Sees to it that a target can be run; `folder` is that of conformance. What is missing is installed if `install`.
pub fn ready(target: Target, folder: &Path, install: bool) -> Result<(), NotRun> {
    let Some(packages) = target.packages(folder) else { return Ok(()) };
    let lock = packages.join("package-lock.json");
    let installed = packages.join("node_modules/.installed-lock.json");
    let wanted = fs::read(&lock).map_err(|error| NotRun(format!("{}: {error}", lock.display())))?;
    if fs::read(&installed).is_ok_and(|there| there == wanted) {
        return Ok(());
    }
    if !install {
        return Err(NotRun("not installed as its lock file says: add --install".to_owned()));
    }
    npm_ci(folder, &packages)?;
    fs::write(&installed, wanted).map_err(|error| NotRun(format!("{}: {error}", installed.display())))
}

/// Starts in a folder without a lock file, since Debian's npm would stumble over that at once.
fn npm_ci(folder: &Path, packages: &Path) -> Result<(), NotRun> {
    let npm = Command::new("npm")
        .args(["exec", "--yes", "--package", NPM, "--"])
        .args(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix"])
        .arg(packages)
        .envs([("npm_config_prefer_offline", "true"), ("npm_config_fetch_retries", "1")])
        .env("npm_config_fetch_retry_mintimeout", "1000")
        .current_dir(folder)
        .output()
        .map_err(|error| NotRun(format!("npm does not start: {error}")))?;
    if npm.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&npm.stderr);
    let first = said.lines().find(|line| line.contains("error")).unwrap_or_else(|| said.trim());
    Err(NotRun(format!("npm ci failed: {first}")))
}
