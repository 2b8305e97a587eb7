//! Where a TypeScript SDK does something else, on purpose or by a fault of its own, and why ours is right.
//!
//! One file for each of them, `divergences/<target>.yaml`. A scenario that is listed there and holds all the same fails
//! the run: the list tells what is, not what was.

#[cfg(test)]
mod tests;

use std::{collections::HashMap, fs, path::Path};

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

use crate::{run::Outcome, target::Target};

/// One difference, and the scenarios that show it.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Divergence {
    /// What that SDK does instead.
    pub does: String,
    /// Why what the scenarios say is right.
    pub because: String,
    /// It does so only now and then: the scenarios may hold as well.
    #[serde(default)]
    pub unsteady: bool,
    /// By name.
    pub scenarios: Vec<String>,
}

/// All of them, by target and scenario.
#[derive(Debug, Default)]
pub struct Divergences(HashMap<(Target, String), Divergence>);

impl Divergences {
    /// Reads the lists; a target without one has none. `folder` is that of conformance.
    pub fn load(folder: &Path) -> Result<Self> {
        let mut all = HashMap::new();
        for target in Target::ALL {
            let path = folder.join("divergences").join(target.name()).with_extension("yaml");
            if !path.exists() {
                continue;
            }
            let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
            let list: Vec<Divergence> =
                serde_saphyr::from_str(&text).with_context(|| path.display().to_string())?;
            for divergence in list {
                for scenario in &divergence.scenarios {
                    let twice = all.insert((target, scenario.clone()), divergence.clone()).is_some();
                    ensure!(!twice, "{} lists {scenario} twice", path.display());
                }
            }
        }
        Ok(Self(all))
    }

    /// Every target and scenario that is listed.
    pub fn listed(&self) -> impl Iterator<Item = (Target, &str)> {
        self.0.keys().map(|(target, scenario)| (*target, scenario.as_str()))
    }

    /// The difference listed for a scenario.
    pub fn get(&self, target: Target, scenario: &str) -> Option<&Divergence> {
        self.0.get(&(target, scenario.to_owned()))
    }

    /// What an outcome means in the light of the list.
    #[must_use]
    pub fn explain(&self, target: Target, scenario: &str, outcome: Outcome) -> Outcome {
        let Some(divergence) = self.get(target, scenario) else { return outcome };
        match outcome {
            Outcome::Holds if divergence.unsteady => Outcome::Holds,
            Outcome::Holds => Outcome::HoldsThoughListed,
            Outcome::Fails(complaints) => Outcome::Diverges(complaints),
            Outcome::Hangs { .. } => Outcome::Diverges(outcome.complaints()),
            other => other,
        }
    }
}
