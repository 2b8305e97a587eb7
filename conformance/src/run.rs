//! Runs scenarios on targets: several at once, each on a driver that does nothing else meanwhile.

mod driver;
mod recordings;
mod scratch;
mod sidecar;
#[cfg(test)]
mod tests;
mod worker;

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result};

use crate::{divergence::Divergences, install::NotRun, scenario::Scenario, target::Target};
use scratch::Scratch;
use sidecar::Sidecar;
use worker::Worker;

/// What is said of a driver that had to be killed.
pub(crate) const NO_ANSWER: &str = "no answer in time; the driver was killed";

/// One scenario on one target.
#[derive(Debug)]
pub struct Cell<'a> {
    /// The scenario.
    pub scenario: &'a Scenario,
    /// The target.
    pub target: Target,
    /// What came of it.
    pub outcome: Outcome,
    /// How long it took.
    pub took: Duration,
}

/// What came of a cell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The scenario holds.
    Holds,
    /// It does not; why.
    Fails(Vec<String>),
    /// The driver had to be killed; after so many reports.
    Hangs {
        /// Reports that had come.
        reports: usize,
    },
    /// It does not hold or hangs, as is listed.
    Diverges(Vec<String>),
    /// It is listed as a divergence, wrongly: it holds, or does something else than is listed.
    Misfiled(Vec<String>),
    /// The target cannot be run here.
    NotRun(NotRun),
}

impl Outcome {
    /// Whether nobody need look at it.
    pub fn is_good(&self) -> bool {
        matches!(self, Self::Holds | Self::Diverges(_) | Self::NotRun(_))
    }

    /// What is remarkable about it, for people.
    pub fn complaints(&self) -> Vec<String> {
        match self {
            Self::Holds => Vec::new(),
            Self::Fails(complaints) | Self::Diverges(complaints) | Self::Misfiled(complaints) => {
                complaints.clone()
            }
            Self::Hangs { reports } => vec![format!("step {reports}: {NO_ANSWER}")],
            Self::NotRun(reason) => vec![reason.to_string()],
        }
    }
}

/// What to run, and on what.
#[derive(Debug)]
pub struct Plan<'a> {
    /// Where drivers and installed packages are.
    pub folder: &'a Path,
    /// The scenarios.
    pub scenarios: &'a [&'a Scenario],
    /// The targets, and why some cannot be run here.
    pub targets: &'a BTreeMap<Target, Result<(), NotRun>>,
    /// What is known to differ.
    pub divergences: &'a Divergences,
    /// Where performances of published SDKs are kept from run to run; without it all are new.
    pub recordings: Option<&'a Path>,
    /// How many run at once.
    pub jobs: usize,
}

impl<'a> Plan<'a> {
    /// Every scenario on every target; the cells in the order of targets, then of scenarios.
    pub fn run(&self) -> Result<Vec<Cell<'a>>> {
        let on = |target: &Target| {
            let taken = self.scenarios.iter().filter(|scenario| target.takes(scenario));
            taken.map(|scenario| (*target, *scenario)).collect::<Vec<_>>()
        };
        let wanted: Vec<_> = self.targets.keys().flat_map(on).collect();
        let scratch = Scratch::create().context("there is no folder for temporary files")?;
        let sidecar = self.sidecar(scratch.path())?;
        let next = AtomicUsize::new(0);
        let done = Mutex::new(Vec::new());
        thread::scope(|scope| {
            for _ in 0..self.jobs.max(1) {
                scope.spawn(|| {
                    let mut worker = Worker::new(self, scratch.path(), sidecar.as_ref());
                    while let Some((target, scenario)) = wanted.get(next.fetch_add(1, Ordering::Relaxed)) {
                        let cell = worker.cell(scenario, *target);
                        done.lock().expect("no code panics under this lock").push(cell);
                    }
                });
            }
        });
        let mut cells = done.into_inner().expect("no code panics under this lock");
        cells.sort_by(|a, b| (a.target, &a.scenario.name).cmp(&(b.target, &b.scenario.name)));
        Ok(cells)
    }

    /// What the client of the protocol connects to, if it is to be run and can be.
    fn sidecar(&self, scratch: &Path) -> Result<Option<Sidecar>> {
        let is_wanted = self.targets.get(&Target::TsClient).is_some_and(Result::is_ok);
        is_wanted.then(|| Sidecar::start(scratch)).transpose()
    }
}
