//! Where a TypeScript SDK does something else, on purpose or by a fault of its own, and why ours is right.
//!
//! One file for each of them, `divergences/<target>.yaml`. A scenario that is listed there and holds all the same, or
//! differs in another way than the list says, fails the run: the list tells what is, not what was.

#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, fs, path::Path, time::Duration};

use anyhow::{Context as _, Result, ensure};
use regex::Regex;
use serde::{Deserialize, Deserializer, de::Error as _};

use crate::{
    run::{NO_ANSWER, Outcome},
    scenario::Scenario,
    target::Target,
};

/// How long a driver is waited for where its SDK is known to hang.
const HANG_LIMIT: Duration = Duration::from_secs(10);

/// One difference, and the scenarios that show it.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Divergence {
    /// What that SDK does instead.
    pub does: String,
    /// Why what the scenarios say is right.
    pub because: String,
    /// What one complaint at least matches, at each of the scenarios.
    #[serde(deserialize_with = "pattern")]
    pub shows: Regex,
    /// By name.
    pub scenarios: Vec<String>,
}

impl Divergence {
    fn hangs(&self) -> bool {
        self.shows.is_match(NO_ANSWER)
    }
}

/// The lists of all targets.
#[derive(Debug, Default)]
pub struct Divergences(BTreeMap<Target, Vec<Divergence>>);

impl Divergences {
    /// Reads the lists; a target without one has none. `folder` is that of conformance.
    pub fn load(folder: &Path) -> Result<Self> {
        let mut lists = BTreeMap::new();
        for target in Target::ALL {
            let path = folder.join("divergences").join(target.name()).with_extension("yaml");
            if !path.exists() {
                continue;
            }
            let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
            let list: Vec<Divergence> =
                serde_saphyr::from_str(&text).with_context(|| path.display().to_string())?;
            let mut names: Vec<_> = list.iter().flat_map(|divergence| &divergence.scenarios).collect();
            names.sort_unstable();
            let twice = names.windows(2).find(|pair| pair[0] == pair[1]);
            ensure!(twice.is_none(), "{} lists {} twice", path.display(), twice.unwrap_or_default()[0]);
            lists.insert(target, list);
        }
        Ok(Self(lists))
    }

    /// A target's list, in the order of its file.
    pub fn of(&self, target: Target) -> &[Divergence] {
        self.0.get(&target).map_or(&[], Vec::as_slice)
    }

    /// The difference listed for a scenario.
    pub fn get(&self, target: Target, scenario: &str) -> Option<&Divergence> {
        let shows = |divergence: &&Divergence| divergence.scenarios.iter().any(|name| name == scenario);
        self.of(target).iter().find(shows)
    }

    /// How long a driver is waited for.
    pub fn limit(&self, target: Target, scenario: &Scenario) -> Duration {
        let limit = scenario.limit() * target.patience();
        let hangs = self.get(target, &scenario.name).is_some_and(Divergence::hangs);
        if hangs { limit.min(HANG_LIMIT) } else { limit }
    }

    /// What an outcome means in the light of the list.
    #[must_use]
    pub fn explain(&self, target: Target, scenario: &str, outcome: Outcome) -> Outcome {
        let Some(divergence) = self.get(target, scenario) else { return outcome };
        match outcome {
            Outcome::Holds => Outcome::Misfiled(vec!["holds, but is listed as a divergence".to_owned()]),
            Outcome::Fails(_) | Outcome::Hangs { .. } => {
                let mut complaints = outcome.complaints();
                if complaints.iter().any(|complaint| divergence.shows.is_match(complaint)) {
                    return Outcome::Diverges(complaints);
                }
                complaints
                    .push(format!("differs otherwise than listed, which is {:?}", divergence.shows.as_str()));
                Outcome::Misfiled(complaints)
            }
            other => other,
        }
    }
}

fn pattern<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Regex, D::Error> {
    Regex::new(&String::deserialize(deserializer)?).map_err(D::Error::custom)
}
