//! Writes what is generated in `conformance/`: the schema of scenarios, and the README's overview.

use std::{env, fs, path::PathBuf};

use agentvm_conformance::{
    divergence::Divergences,
    overview::Overview,
    scenario::{self, Scenario},
};
use anyhow::{Context as _, Result};

fn main() -> Result<()> {
    let folder = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").context("start me with cargo run")?);
    let schema = serde_json::to_value(schemars::schema_for!(Scenario))?;
    fs::write(folder.join("scenario.schema.json"), serde_json::to_string_pretty(&schema)? + "\n")?;

    let readme = folder.join("README.md");
    let scenarios = scenario::all(&folder.join("scenarios"))?;
    let divergences = Divergences::load(&folder)?;
    let overview = Overview { scenarios: &scenarios, divergences: &divergences };
    let text = overview.renew(&fs::read_to_string(&readme)?).context("README.md lost its marks")?;
    Ok(fs::write(&readme, text)?)
}
