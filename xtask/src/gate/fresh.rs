//! The step `fresh`: the committed schemas and golden vectors are what the message types generate today.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::Gate;
use crate::child;

const LIMIT: Duration = Duration::from_secs(5 * 60);
const GENERATED: [&str; 2] = ["wire/schema", "wire/golden"];
const BY_HAND: &str = "cargo run -p agentvm-wire --features schema --example generate";

/// Runs the generator that the build made: the command for people would resolve features for that one package and
/// so build half of its dependencies a second time.
pub(super) fn run(gate: &mut Gate) -> Result<()> {
    let mut executables = gate.built()?.executables.iter();
    let generator = executables
        .find(|executable| {
            executable.kind == "example" && executable.name == "generate" && !executable.is_test
        })
        .context("the build made no example `generate` of wire")?;
    let mut generate = Command::new(&generator.path);
    generate.current_dir(&gate.root).env("CARGO_MANIFEST_DIR", gate.root.join(&generator.package));
    child::succeed(&mut generate, LIMIT)?;

    let changed = git(&gate.root, &["diff", "--name-only"])?;
    let untracked = git(&gate.root, &["ls-files", "--others", "--exclude-standard"])?;
    ensure!(
        changed.is_empty() && untracked.is_empty(),
        "generated files differ from those in git; look at them, then `git add` what `{BY_HAND}` wrote:\n{changed}{untracked}"
    );
    for folder in GENERATED {
        ensure!(!git(&gate.root, &["ls-files"])?.is_empty(), "git knows no file in {folder}");
    }
    Ok(())
}

fn git(root: &Path, arguments: &[&str]) -> Result<String> {
    child::stdout_of(Command::new("git").current_dir(root).args(arguments).arg("--").args(GENERATED), LIMIT)
}
