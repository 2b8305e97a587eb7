//! The step `fresh`: the committed schemas, golden vectors and overviews are what would be generated today.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};

use super::Gate;
use crate::child;

const LIMIT: Duration = Duration::from_secs(5 * 60);
const GENERATED: [&str; 4] =
    ["wire/schema", "wire/golden", "conformance/scenario.schema.json", "conformance/README.md"];
const BY_HAND: &str = "\
cargo run -p agentvm-wire --features schema --example generate
cargo run -p agentvm-conformance --example renew";

/// Runs the generators that the build made: the commands for people would resolve features for one package each and
/// so build half of its dependencies a second time.
pub(super) fn run(gate: &mut Gate) -> Result<()> {
    let generators: Vec<_> = gate.built()?.generators().collect();
    ensure!(generators.len() == BY_HAND.lines().count(), "the build made {} generators", generators.len());
    for generator in generators {
        let mut generate = Command::new(&generator.path);
        generate.current_dir(&gate.root).env("CARGO_MANIFEST_DIR", gate.root.join(&generator.package));
        child::succeed(&mut generate, LIMIT)?;
    }

    let changed = git(&gate.root, &["diff", "--name-only"])?;
    let untracked = git(&gate.root, &["ls-files", "--others", "--exclude-standard"])?;
    ensure!(
        changed.is_empty() && untracked.is_empty(),
        "generated files differ from those in git; look at them, then `git add` what these wrote:\n{BY_HAND}\n\n{changed}{untracked}"
    );
    for folder in GENERATED {
        ensure!(!git(&gate.root, &["ls-files"])?.is_empty(), "git knows no file in {folder}");
    }
    Ok(())
}

fn git(root: &Path, arguments: &[&str]) -> Result<String> {
    child::stdout_of(Command::new("git").current_dir(root).args(arguments).arg("--").args(GENERATED), LIMIT)
}
