//! The table at the end: each step, its seconds, how it went.

use std::fmt;

#[derive(Debug, Clone, Copy)]
pub(super) enum Outcome {
    Passed(f32),
    Failed(f32),
    NotRun,
}

#[derive(Default)]
pub(super) struct Table(Vec<(&'static str, Outcome)>);

impl Table {
    pub(super) fn add(&mut self, step: &'static str, outcome: Outcome) {
        self.0.push((step, outcome));
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<11} {:>7}", "step", "seconds")?;
        let mut total = 0.0;
        for (step, outcome) in &self.0 {
            match outcome {
                Outcome::Passed(seconds) => writeln!(f, "{step:<11} {seconds:>7.1}  ok")?,
                Outcome::Failed(seconds) => writeln!(f, "{step:<11} {seconds:>7.1}  FAILED")?,
                Outcome::NotRun => writeln!(f, "{step:<11} {:>7}  not run", "")?,
            }
            if let Outcome::Passed(seconds) | Outcome::Failed(seconds) = outcome {
                total += seconds;
            }
        }
        writeln!(f, "{:<11} {total:>7.1}", "all")
    }
}
