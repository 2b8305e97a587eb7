//! The gate: the steps every change passes, in order, and the first failure ends it.
//!
//! CI runs exactly this and reads the last line, `N passed, N failed`: both runs of the test executables, the scenarios on
//! every target and the doc tests together.

mod build;
mod cargo_checks;
mod conformance;
mod doc;
pub(crate) mod escapes;
mod examples;
mod fresh;
mod libtest;
mod licences;
mod options;
mod suite;
mod table;

use std::env;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result};

use crate::cargo::workspace_root;
use build::Built;
use libtest::Tally;
pub(crate) use options::Options;
use table::{Outcome, Table};

/// What the steps hand to each other.
pub(crate) struct Gate {
    root: PathBuf,
    options: Options,
    built: Option<Built>,
    tally: Tally,
}

impl Gate {
    fn built(&self) -> Result<&Built> {
        self.built.as_ref().context("nothing is built")
    }
}

struct Step {
    name: &'static str,
    /// Whether it runs what the step `build` built.
    runs_binaries: bool,
    run: fn(&mut Gate) -> Result<()>,
}

const BUILD: &str = "build";

const STEPS: [Step; 9] = [
    Step { name: "fmt", runs_binaries: false, run: cargo_checks::fmt },
    Step { name: "clippy", runs_binaries: false, run: cargo_checks::clippy },
    Step { name: BUILD, runs_binaries: false, run: build::run },
    Step { name: "tests", runs_binaries: true, run: suite::run },
    Step { name: "conformance", runs_binaries: true, run: conformance::run },
    Step { name: "doc", runs_binaries: false, run: doc::run },
    Step { name: "fresh", runs_binaries: true, run: fresh::run },
    Step { name: "examples", runs_binaries: true, run: examples::run },
    Step { name: "licences", runs_binaries: false, run: licences::run },
];

/// The names of all steps, for the usage text.
pub(crate) fn step_names() -> String {
    STEPS.map(|step| step.name).join(", ")
}

pub(crate) fn run(options: Options) -> Result<ExitCode> {
    let mut gate = Gate { root: workspace_root()?, options, built: None, tally: Tally::default() };
    let mut table = Table::default();
    let mut failure = None;
    for step in &STEPS {
        if !is_wanted(step, &gate.options) {
            continue;
        }
        if failure.is_some() {
            table.add(step.name, Outcome::NotRun);
            continue;
        }
        println!("── {}", step.name);
        let start = Instant::now();
        let result = (step.run)(&mut gate);
        let seconds = start.elapsed().as_secs_f32();
        println!("── {}: {seconds:.1} s", step.name);
        table
            .add(step.name, if result.is_ok() { Outcome::Passed(seconds) } else { Outcome::Failed(seconds) });
        failure = result.err().map(|error| (step.name, error));
    }
    println!("\n{table}");
    if let Some((step, error)) = &failure {
        println!("{step} failed: {}\n", format!("{error:#}").trim_end());
    }
    println!("{}", gate.tally);
    Ok(if failure.is_none() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Whether nothing may be left out for want of a tool or a privilege.
fn in_ci() -> bool {
    env::var("CI").is_ok_and(|ci| !["", "0", "false"].contains(&&*ci))
}

fn is_wanted(step: &Step, options: &Options) -> bool {
    options.wants(step.name)
        || step.name == BUILD && STEPS.iter().any(|other| other.runs_binaries && options.wants(other.name))
}
