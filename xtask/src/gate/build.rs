//! The one build of the gate: everything in the dev profile, and the list of executables that came out of it.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

use super::Gate;
use crate::cargo::cargo;
use crate::child;

const LIMIT: Duration = Duration::from_secs(30 * 60);

/// What the build made that can be run.
pub(super) struct Built {
    pub(super) executables: Vec<Executable>,
}

#[derive(Debug)]
pub(super) struct Executable {
    pub(super) path: PathBuf,
    /// The folder of its package, relative to the workspace: `wire`, `sidecar`, …
    pub(super) package: PathBuf,
    /// Cargo's word for the target: `lib`, `bin`, `test`, `example`, `bench`.
    pub(super) kind: String,
    pub(super) name: String,
    /// Whether it is the target's libtest harness, not the target itself.
    pub(super) is_test: bool,
}

impl Executable {
    pub(super) fn file_name(&self) -> &OsStr {
        self.path.file_name().unwrap_or_default()
    }

    /// How people name it: `sidecar test end_to_end`.
    pub(super) fn label(&self) -> String {
        format!("{} {} {}", self.package.display(), self.kind, self.name)
    }
}

impl Built {
    /// Executables of libtest. A bench is built as a test too, but is none.
    pub(super) fn tests(&self) -> impl Iterator<Item = &Executable> {
        self.executables.iter().filter(|executable| executable.is_test && executable.kind != "bench")
    }

    /// The programs of the workspace.
    pub(super) fn binaries(&self) -> impl Iterator<Item = &Executable> {
        self.executables.iter().filter(|executable| !executable.is_test && executable.kind == "bin")
    }

    /// Examples in cargo's sense; all of them generate files that are committed.
    pub(super) fn generators(&self) -> impl Iterator<Item = &Executable> {
        self.executables.iter().filter(|executable| !executable.is_test && executable.kind == "example")
    }

    /// The program of that name.
    pub(super) fn binary(&self, name: &str) -> Result<&Executable> {
        self.binaries()
            .find(|binary| binary.name == name)
            .with_context(|| format!("the build made no {name}"))
    }

    /// The folder where cargo put the programs.
    pub(super) fn binary_folder(&self) -> Result<&Path> {
        self.binary("agentvm-sidecar")?.path.parent().context("agentvm-sidecar lies in no folder")
    }
}

/// `cargo build --all-targets` makes the very executables of `cargo test --no-run`, and the programs beside them.
pub(super) fn run(gate: &mut Gate) -> Result<()> {
    let messages = child::stdout_of(
        cargo()?.args(["build", "--workspace", "--all-targets", "--message-format=json-render-diagnostics"]),
        LIMIT,
    )?;
    let mut executables = Vec::new();
    for line in messages.lines() {
        let message: Value = serde_json::from_str(line).context("cargo wrote a line that is no JSON")?;
        executables.extend(executable(&message, &gate.root)?);
    }
    gate.built = Some(Built { executables });
    Ok(())
}

/// The executable a message of cargo tells of, if it tells of one.
fn executable(message: &Value, root: &Path) -> Result<Option<Executable>> {
    let Some(path) = message["executable"].as_str() else { return Ok(None) };
    let text = |value: &Value| value.as_str().map(str::to_owned).context("a message of cargo lacks a field");
    let manifest = text(&message["manifest_path"])?;
    let folder = Path::new(&manifest).parent().context("a manifest lies in no folder")?;
    Ok(Some(Executable {
        path: path.into(),
        package: folder.strip_prefix(root).context("a package lies outside the workspace")?.to_owned(),
        kind: text(&message["target"]["kind"][0])?,
        name: text(&message["target"]["name"])?,
        is_test: message["profile"]["test"].as_bool().context("a message of cargo lacks its profile")?,
    }))
}
