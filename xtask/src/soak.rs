//! `cargo xtask soak`: what the gate does for seconds, for as long as it takes.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;

use crate::cargo::cargo;
use crate::child;

const LIMIT: Duration = Duration::from_secs(4 * 60 * 60);
const EXECS: &str = "100000";
const CREATIONS: &str = "500";
const VMS: &str = "1000";

pub(crate) fn run() -> Result<ExitCode> {
    // Tests start the examples, too.
    let mut build = cargo()?;
    build.args(["build", "--release", "--workspace", "--bins"]);
    child::succeed(&mut build, LIMIT)?;
    let mut soak = cargo()?;
    soak.args(["test", "--release", "-p", "agentvm-sidecar", "--test", "e2e", "--"])
        .args(["soak::", "killed::", "crowd::", "monitor", "--nocapture", "--test-threads=1"])
        .env("AGENTVM_SOAK_EXECS", EXECS)
        .env("AGENTVM_SOAK_CREATIONS", CREATIONS)
        .env("AGENTVM_SOAK_VMS", VMS)
        .env("AGENTVM_SOAK_MONITORS", "1");
    child::succeed(&mut soak, LIMIT)?;
    Ok(ExitCode::SUCCESS)
}
