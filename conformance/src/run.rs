//! Runs scenarios on targets: several at once, each with a driver of its own.

mod driver;
mod sidecar;
#[cfg(test)]
mod tests;

use std::{
    path::Path,
    process::Command,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::Result;

use crate::{
    divergence::Divergences,
    judge,
    scenario::Scenario,
    target::{NotRun, Target},
};
use sidecar::Sidecar;

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
    /// It does not hold or hangs, and is listed as a divergence.
    Diverges(Vec<String>),
    /// It is listed as a divergence, wrongly.
    HoldsThoughListed,
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
            Self::Fails(complaints) | Self::Diverges(complaints) => complaints.clone(),
            Self::Hangs { reports } => {
                vec![format!("step {reports}: no answer in time; the driver was killed")]
            }
            Self::HoldsThoughListed => vec!["holds, but is listed as a divergence".to_owned()],
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
    pub scenarios: &'a [Scenario],
    /// The targets.
    pub targets: &'a [Target],
    /// What is known to differ.
    pub divergences: &'a Divergences,
    /// How many run at once.
    pub jobs: usize,
}

impl<'a> Plan<'a> {
    /// Every scenario on every target; the cells in the order of targets, then of scenarios.
    pub fn run(&self) -> Result<Vec<Cell<'a>>> {
        let on = |target: &Target| {
            let taken = self.scenarios.iter().filter(|scenario| target.takes(scenario));
            taken.map(|scenario| (*target, scenario)).collect::<Vec<_>>()
        };
        let wanted: Vec<_> = self.targets.iter().flat_map(on).collect();
        let sidecar = self.sidecar()?;
        let next = AtomicUsize::new(0);
        let done = Mutex::new(Vec::new());
        thread::scope(|scope| {
            for _ in 0..self.jobs.max(1) {
                scope.spawn(|| {
                    while let Some((target, scenario)) = wanted.get(next.fetch_add(1, Ordering::Relaxed)) {
                        let cell = self.cell(scenario, *target, sidecar.as_ref());
                        done.lock().expect("no code panics under this lock").push(cell);
                    }
                });
            }
        });
        let mut cells = done.into_inner().expect("no code panics under this lock");
        cells.sort_by(|a, b| (a.target, &a.scenario.name).cmp(&(b.target, &b.scenario.name)));
        Ok(cells)
    }

    /// What the client of the protocol connects to, if it is among the targets and can be run.
    fn sidecar(&self) -> Result<Option<Sidecar>> {
        let is_wanted =
            self.targets.contains(&Target::TsClient) && Target::TsClient.driver(self.folder).is_ok();
        is_wanted.then(Sidecar::start).transpose()
    }

    fn cell(&self, scenario: &'a Scenario, target: Target, sidecar: Option<&Sidecar>) -> Cell<'a> {
        let begun = Instant::now();
        let outcome = match target.driver(self.folder) {
            Ok(mut command) => {
                if target == Target::TsClient
                    && let Some(sidecar) = sidecar
                {
                    sidecar.introduce(&mut command);
                }
                self.divergences.explain(target, &scenario.name, outcome(command, scenario, target))
            }
            Err(reason) => Outcome::NotRun(reason),
        };
        Cell { scenario, target, outcome, took: begun.elapsed() }
    }
}

fn outcome(command: Command, scenario: &Scenario, target: Target) -> Outcome {
    let end = match driver::run(command, scenario, scenario.limit() * target.patience()) {
        Ok(end) => end,
        Err(error) => return Outcome::Fails(vec![format!("{error:#}")]),
    };
    if !end.in_time {
        return Outcome::Hangs { reports: end.reports.len() };
    }
    let mut complaints = judge::complaints(scenario, &end.reports);
    if complaints.is_empty() {
        return Outcome::Holds;
    }
    if !end.stderr.is_empty() {
        complaints.push(format!("driver: {}", end.stderr.trim_end()));
    }
    Outcome::Fails(complaints)
}
