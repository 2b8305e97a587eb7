//! The step `licences`: everything in the dependency tree may be shipped with an Apache-2.0 program.

mod spdx;

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::Gate;
use crate::cargo::cargo;
use crate::child;
use spdx::Expression;

const LIMIT: Duration = Duration::from_secs(10 * 60);
const OURS: &str = "Apache-2.0";
/// Licences that ask for a notice at most.
const ALLOWED: [&str; 13] = [
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

pub(super) fn run(_: &mut Gate) -> Result<()> {
    let text = child::stdout_of(cargo()?.args(["metadata", "--format-version", "1"]), LIMIT)?;
    let metadata: Value = serde_json::from_str(&text).context("cargo metadata wrote no JSON")?;
    let packages = metadata["packages"].as_array().context("cargo metadata names no packages")?;
    let refused: Vec<String> = packages.iter().filter_map(refusal).collect();
    ensure!(refused.is_empty(), "{}", refused.join("\n"));
    println!("   {} packages", packages.len());
    Ok(())
}

/// Why a package may not be in the tree, if so.
fn refusal(package: &Value) -> Option<String> {
    let name = format!("{} {}", package["name"].as_str()?, package["version"].as_str()?);
    let Some(licence) = package["license"].as_str() else { return Some(format!("{name} names no licence")) };
    // A package of the workspace comes from no registry.
    if package["source"].is_null() {
        return (licence != OURS).then(|| format!("{name} is {licence}, not {OURS}"));
    }
    match Expression::parse(licence) {
        Ok(expression) if expression.is_met_by(&ALLOWED) => None,
        Ok(_) => Some(format!("{name} is {licence}, which is not on the list")),
        Err(error) => Some(format!("{name}: {error:#}")),
    }
}
