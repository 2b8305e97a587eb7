//! Runs scenarios on targets: several at once, each with a driver of its own.

mod driver;
#[cfg(test)]
mod tests;

use std::{
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use crate::{judge, scenario::Scenario, target::Target};

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
}

impl Outcome {
    /// Whether nobody need look at it.
    pub fn is_good(&self) -> bool {
        matches!(self, Self::Holds)
    }

    /// Why not, for people.
    pub fn complaints(&self) -> Vec<String> {
        match self {
            Self::Holds => Vec::new(),
            Self::Fails(complaints) => complaints.clone(),
            Self::Hangs { reports } => {
                vec![format!("step {reports}: no answer in time; the driver was killed")]
            }
        }
    }
}

/// Every scenario on every target, `jobs` at once; the cells in the order of targets, then of scenarios.
pub fn all<'a>(scenarios: &'a [Scenario], targets: &[Target], jobs: usize) -> Vec<Cell<'a>> {
    let wanted: Vec<_> =
        targets.iter().flat_map(|target| scenarios.iter().map(move |scenario| (*target, scenario))).collect();
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            scope.spawn(|| {
                while let Some((target, scenario)) = wanted.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let cell = cell(scenario, *target);
                    done.lock().expect("no code panics under this lock").push(cell);
                }
            });
        }
    });
    let mut cells = done.into_inner().expect("no code panics under this lock");
    cells.sort_by(|a, b| (a.target, &a.scenario.name).cmp(&(b.target, &b.scenario.name)));
    cells
}

fn cell(scenario: &Scenario, target: Target) -> Cell<'_> {
    let begun = Instant::now();
    let outcome = match target.driver().and_then(|command| driver::run(command, scenario)) {
        Ok(driver::End { reports, in_time: false, .. }) => Outcome::Hangs { reports: reports.len() },
        Ok(driver::End { reports, stderr, .. }) => {
            let mut complaints = judge::complaints(scenario, &reports);
            if complaints.is_empty() {
                Outcome::Holds
            } else {
                complaints.extend((!stderr.is_empty()).then(|| format!("driver: {}", stderr.trim_end())));
                Outcome::Fails(complaints)
            }
        }
        Err(error) => Outcome::Fails(vec![format!("{error:#}")]),
    };
    Cell { scenario, target, outcome, took: begun.elapsed() }
}
