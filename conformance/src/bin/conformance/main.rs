//! The runner: scenarios × targets, one table, exit code 0 only if every cell is good. Under other names it is the
//! driver over our own SDK, and the sidecar that clients of the protocol connect to.

mod driver;
mod sidecar;

use std::{fs, path::PathBuf, process::ExitCode};

use agentvm_conformance::{
    divergence::Divergences,
    install,
    junit::Junit,
    parity::Parity,
    role::Role,
    run::{Outcome, Plan},
    scenario::{self, Scenario},
    table::Table,
    target::Target,
};
use anyhow::{Context as _, Result, ensure};
use clap::Parser;

/// Run the conformance scenarios.
#[derive(Parser)]
struct Arguments {
    /// Only on this SDK; may be given several times.
    #[arg(long)]
    driver: Vec<Target>,
    /// Only scenarios whose names contain this.
    #[arg(long, default_value = "")]
    filter: String,
    /// How many run at once.
    #[arg(long, default_value_t = 4)]
    jobs: usize,
    /// Write the outcome to this file as `JUnit`, too.
    #[arg(long)]
    junit: Option<PathBuf>,
    /// Install the published SDKs that are missing, with npm.
    #[arg(long)]
    install: bool,
    /// Keep what the published SDKs did in this folder, and have them do only what they did not do yet.
    #[arg(long)]
    recordings: Option<PathBuf>,
    /// A target that cannot be run here fails the run.
    #[arg(long)]
    complete: bool,
    /// The folder of scenarios, divergences, drivers and targets.
    #[arg(long, default_value = env!("CARGO_MANIFEST_DIR"))]
    folder: PathBuf,
}

fn main() -> Result<ExitCode> {
    match Role::own() {
        Role::Driver => driver::run().map(|()| ExitCode::SUCCESS),
        Role::Sidecar => Ok(sidecar::run()),
        // The driver's SDK launches this very program, too.
        Role::Runner => {
            agentvm_sidecar::run_if_requested();
            run()
        }
    }
}

fn run() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    let all = scenario::all(&arguments.folder.join("scenarios"))?;
    let divergences = Divergences::load(&arguments.folder)?;
    let scenarios = wanted(&all, &arguments.filter)?;
    let chosen = if arguments.driver.is_empty() { Target::ALL.to_vec() } else { arguments.driver };
    let ready = |target| (target, install::ready(target, &arguments.folder, arguments.install));
    let targets = chosen.into_iter().map(ready).collect();
    let plan = Plan {
        folder: &arguments.folder,
        scenarios: &scenarios,
        targets: &targets,
        divergences: &divergences,
        recordings: arguments.recordings.as_deref(),
        jobs: arguments.jobs,
    };
    let cells = plan.run()?;
    println!("{}", Table(&cells));
    if let Some(file) = arguments.junit {
        fs::write(&file, Junit(&cells).to_string())
            .with_context(|| format!("{} cannot be written", file.display()))?;
    }
    let parity = Parity::of(&all, &divergences);
    println!("{parity}");
    let not_run = cells.iter().filter(|cell| matches!(cell.outcome, Outcome::NotRun(_))).count();
    let failed = cells.iter().filter(|cell| !cell.outcome.is_good()).count();
    println!("\n{} passed, {failed} failed, {not_run} skipped", cells.len() - failed - not_run);
    let good = failed == 0 && parity.holds() && !(arguments.complete && not_run > 0);
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn wanted<'a>(all: &'a [Scenario], filter: &str) -> Result<Vec<&'a Scenario>> {
    let scenarios: Vec<_> = all.iter().filter(|scenario| scenario.name.contains(filter)).collect();
    ensure!(!scenarios.is_empty(), "no scenario's name contains {filter:?}");
    Ok(scenarios)
}
