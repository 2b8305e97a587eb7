//! `cargo xtask bench`: hands its arguments to the bench binary of the sidecar, and runs the storms.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;

use crate::cargo::cargo;
use crate::child;

const LIMIT: Duration = Duration::from_secs(60 * 60);

pub(crate) fn run(arguments: &[String]) -> Result<ExitCode> {
    let own = arguments.strip_prefix(&["--".to_owned()]).unwrap_or(arguments);
    let (storms, others) = (own.iter().any(|word| word == "storms"), own.iter().any(|word| word != "storms"));
    if others || !storms {
        bench("agentvm-sidecar", "bench", own)?;
    }
    if storms || !others {
        // The one beside the attacker.
        child::succeed(cargo()?.args(["build", "--release", "-p", "agentvm-sidecar"]), LIMIT)?;
        bench("agentvm-escapes", "storms", own)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn bench(package: &str, name: &str, arguments: &[String]) -> Result<()> {
    let mut bench = cargo()?;
    bench.args(["bench", "-p", package, "--bench", name, "--"]).args(arguments);
    child::succeed(&mut bench, LIMIT)
}
