//! The runner: scenarios × targets, one table, exit code 0 only if every cell is good.

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

use agentvm_conformance::{
    divergence::Divergences,
    junit::Junit,
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
    /// A target that cannot be run here fails the run.
    #[arg(long)]
    complete: bool,
    /// The folder of scenarios, divergences, drivers and targets.
    #[arg(long, default_value = env!("CARGO_MANIFEST_DIR"))]
    folder: PathBuf,
}

fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    let scenarios = wanted(&arguments.folder, &arguments.filter)?;
    let mut targets = if arguments.driver.is_empty() { Target::ALL.to_vec() } else { arguments.driver };
    targets.sort_unstable();
    targets.dedup();

    let plan = Plan {
        folder: &arguments.folder,
        scenarios: &scenarios,
        targets: &targets,
        divergences: &Divergences::load(&arguments.folder)?,
        jobs: arguments.jobs,
    };
    let cells = plan.run()?;
    println!("{}", Table(&cells));
    if let Some(file) = arguments.junit {
        fs::write(&file, Junit(&cells).to_string())
            .with_context(|| format!("{} cannot be written", file.display()))?;
    }
    let not_run = cells.iter().filter(|cell| matches!(cell.outcome, Outcome::NotRun(_))).count();
    let failed = cells.iter().filter(|cell| !cell.outcome.is_good()).count();
    println!("\n{} passed, {failed} failed, {not_run} skipped", cells.len() - failed - not_run);
    let good = failed == 0 && !(arguments.complete && not_run > 0);
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn wanted(folder: &Path, filter: &str) -> Result<Vec<Scenario>> {
    let mut scenarios = scenario::all(&folder.join("scenarios"))?;
    scenarios.retain(|scenario| scenario.name.contains(filter));
    ensure!(!scenarios.is_empty(), "no scenario's name contains {filter:?}");
    Ok(scenarios)
}
