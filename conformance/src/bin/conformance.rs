//! The runner: scenarios × targets, one table, exit code 0 only if every cell is good.

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

use agentvm_conformance::{
    junit::Junit,
    run,
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
    /// Where the scenarios are.
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/scenarios"))]
    scenarios: PathBuf,
}

fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    let scenarios = wanted(&arguments.scenarios, &arguments.filter)?;
    let mut targets = if arguments.driver.is_empty() { Target::ALL.to_vec() } else { arguments.driver };
    targets.sort_unstable();
    targets.dedup();

    let cells = run::all(&scenarios, &targets, arguments.jobs);
    print!("{}", Table(&cells));
    if let Some(file) = arguments.junit {
        fs::write(&file, Junit(&cells).to_string())
            .with_context(|| format!("{} cannot be written", file.display()))?;
    }
    let failed = cells.iter().filter(|cell| !cell.outcome.is_good()).count();
    println!("\n{} passed, {failed} failed", cells.len() - failed);
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn wanted(folder: &Path, filter: &str) -> Result<Vec<Scenario>> {
    let mut scenarios = scenario::all(folder)?;
    scenarios.retain(|scenario| scenario.name.contains(filter));
    ensure!(!scenarios.is_empty(), "no scenario's name contains {filter:?}");
    Ok(scenarios)
}
