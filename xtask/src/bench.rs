//! `cargo xtask bench`: hands its arguments to the bench binary of the sidecar.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;

use crate::cargo::cargo;
use crate::child;

const LIMIT: Duration = Duration::from_secs(60 * 60);

pub(crate) fn run(arguments: &[String]) -> Result<ExitCode> {
    let own = arguments.strip_prefix(&["--".to_owned()]).unwrap_or(arguments);
    let mut bench = cargo()?;
    bench.args(["bench", "-p", "agentvm-sidecar", "--bench", "bench", "--"]).args(own);
    child::succeed(&mut bench, LIMIT)?;
    Ok(ExitCode::SUCCESS)
}
