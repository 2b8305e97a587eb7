//! The steps that are one cargo command: formatting and lints.

use std::time::Duration;

use anyhow::Result;

use super::Gate;
use crate::cargo::cargo;
use crate::child;

const FMT_LIMIT: Duration = Duration::from_secs(2 * 60);
const CLIPPY_LIMIT: Duration = Duration::from_secs(20 * 60);

pub(super) fn fmt(_: &mut Gate) -> Result<()> {
    child::succeed(cargo()?.args(["fmt", "--all", "--check"]), FMT_LIMIT)
}

pub(super) fn clippy(_: &mut Gate) -> Result<()> {
    let lints = ["clippy", "--workspace", "--all-targets", "--all-features", "--", "-D", "warnings"];
    child::succeed(cargo()?.args(lints), CLIPPY_LIMIT)
}
