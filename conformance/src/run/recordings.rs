//! What the published SDKs did the last time, kept from run to run: nothing changes it but the files it was made with.

use std::{
    fs,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

use super::driver::{Performance, orders};
use crate::{scenario::Scenario, target::Target};

/// A performance, and what it was made with.
#[derive(Serialize, Deserialize)]
struct Recording {
    made_with: u64,
    performance: Performance,
}

/// The place of one performance.
pub(super) struct Place {
    path: PathBuf,
    made_with: u64,
}

impl Place {
    /// Where it lies in a folder of recordings; `folder` is that of conformance.
    pub(super) fn of(
        recordings: &Path,
        target: Target,
        folder: &Path,
        scenario: &Scenario,
        limit: Duration,
    ) -> Result<Self> {
        let mut hasher = DefaultHasher::new();
        for source in target.sources(folder) {
            fs::read(&source).with_context(|| source.display().to_string())?.hash(&mut hasher);
        }
        (orders(scenario)?, limit).hash(&mut hasher);
        let path = recordings.join(target.name()).join(&scenario.name).with_extension("json");
        Ok(Self { path, made_with: hasher.finish() })
    }

    /// The performance, if it was made with the same.
    pub(super) fn recall(&self) -> Option<Performance> {
        let recording: Recording = serde_json::from_slice(&fs::read(&self.path).ok()?).ok()?;
        (recording.made_with == self.made_with).then_some(recording.performance)
    }

    pub(super) fn keep(&self, performance: Performance) -> Result<()> {
        fs::create_dir_all(self.path.parent().context("a recording lies in a folder")?)?;
        let recording = Recording { made_with: self.made_with, performance };
        Ok(fs::write(&self.path, serde_json::to_vec(&recording)?)?)
    }
}
