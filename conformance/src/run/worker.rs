//! One of those who run scenarios at once: takes a scenario to a driver, and keeps a driver that can serve again.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use anyhow::Result;

use super::{
    Cell, Outcome, Plan,
    driver::{Driver, End, Performance},
    recordings::Place,
    sidecar::Sidecar,
};
use crate::{judge, scenario::Scenario, target::Target};

pub(super) struct Worker<'p, 'a> {
    plan: &'p Plan<'a>,
    /// Where drivers put temporary files.
    scratch: &'p Path,
    /// What the client of the protocol connects to.
    sidecar: Option<&'p Sidecar>,
    /// Has served, and can again.
    idle: Option<(Target, Driver)>,
}

impl<'p, 'a> Worker<'p, 'a> {
    pub(super) fn new(plan: &'p Plan<'a>, scratch: &'p Path, sidecar: Option<&'p Sidecar>) -> Self {
        Self { plan, scratch, sidecar, idle: None }
    }

    pub(super) fn cell(&mut self, scenario: &'a Scenario, target: Target) -> Cell<'a> {
        let begun = Instant::now();
        let outcome = match &self.plan.targets[&target] {
            Ok(()) => self.outcome(scenario, target),
            Err(reason) => Ok(Outcome::NotRun(reason.clone())),
        };
        let outcome = outcome.unwrap_or_else(|error| Outcome::Fails(vec![format!("{error:#}")]));
        Cell { scenario, target, outcome, took: begun.elapsed() }
    }

    fn outcome(&mut self, scenario: &Scenario, target: Target) -> Result<Outcome> {
        let Plan { folder, recordings, divergences, .. } = self.plan;
        let limit = divergences.limit(target, scenario);
        let place = recordings
            .filter(|_| target.is_published())
            .map(|recordings| Place::of(recordings, target, folder, scenario, limit))
            .transpose()?;
        let performance = match place.as_ref().and_then(Place::recall) {
            Some(performance) => performance,
            None => self.performed(scenario, target, limit)?,
        };
        let outcome = divergences.explain(target, &scenario.name, outcome(scenario, &performance));
        // What nobody expected is looked at again the next time.
        if let Some(place) = place.filter(|_| outcome.is_good()) {
            place.keep(performance)?;
        }
        Ok(outcome)
    }

    fn performed(&mut self, scenario: &Scenario, target: Target, limit: Duration) -> Result<Performance> {
        if let Some((_, mut driver)) = self.idle.take().filter(|(of, _)| *of == target) {
            let performance = driver.perform(scenario, limit)?;
            // If there is no VM yet, what was done before has kept it from the driver.
            if !performance.reports.is_empty() {
                return Ok(self.done(target, driver, performance));
            }
        }
        let mut command = target.driver(self.plan.folder)?;
        command.env("TMPDIR", self.scratch);
        if let (Target::TsClient, Some(sidecar)) = (target, self.sidecar) {
            sidecar.introduce(&mut command);
        }
        let mut driver = Driver::start(command)?;
        let performance = driver.perform(scenario, limit)?;
        Ok(self.done(target, driver, performance))
    }

    fn done(&mut self, target: Target, driver: Driver, performance: Performance) -> Performance {
        if performance.end == End::Complete && target.serves_again() {
            self.idle = Some((target, driver));
        }
        performance
    }
}

/// What a performance comes to, as far as the scenario alone can tell.
fn outcome(scenario: &Scenario, performance: &Performance) -> Outcome {
    let Performance { reports, end } = performance;
    if *end == End::Late {
        return Outcome::Hangs { reports: reports.len() };
    }
    let mut complaints = judge::complaints(scenario, reports);
    if let End::Ended(stderr) = end
        && !stderr.is_empty()
    {
        complaints.push(format!("driver: {}", stderr.trim_end()));
    }
    if complaints.is_empty() { Outcome::Holds } else { Outcome::Fails(complaints) }
}
