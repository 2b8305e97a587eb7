//! The step `tests`: every test executable, once as the caller and, when that is root, once more as an ordinary user.
//!
//! Sandboxes are built differently for the two, so half a run proves half. A half that cannot run is said aloud, and
//! is a failure under CI. Both run at the same time: most tests wait for something more than they compute.

mod half;
mod ordinary;

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::build::{Built, Executable};
use super::libtest::{self, Tally};
use super::{Gate, in_ci};
use crate::child::{self, Streams};
pub(super) use half::Half;

const LIST_LIMIT: Duration = Duration::from_secs(60);
const RUN_LIMIT: Duration = Duration::from_secs(10 * 60);

/// A test executable and the number of tests it must run.
struct Listed<'a> {
    executable: &'a Executable,
    tests: usize,
}

pub(super) fn run(gate: &mut Gate) -> Result<()> {
    let Gate { root, options, built, tally } = gate;
    let built = built.as_ref().context("nothing is built")?;
    let caller = Half::caller(built, root)?;
    let listed = list(built, &caller, &options.libtest)?;
    let ordinary = caller.is_root().then(|| Half::ordinary(built, root)).transpose()?;
    let halves: Vec<&Half> = std::iter::once(&caller).chain(&ordinary).collect();
    let runs = thread::scope(|scope| {
        let (listed, arguments) = (&listed, &options.libtest);
        let start = |half| scope.spawn(move || run_half(half, listed, arguments));
        let running: Vec<_> = halves.into_iter().map(start).collect();
        running.into_iter().map(|run| run.join().expect("it does not panic")).collect::<Result<Vec<_>>>()
    })?;
    let mut complaints = Vec::new();
    for Run { counted, complained } in runs {
        *tally += counted;
        complaints.extend(complained);
    }
    if let Some(ordinary) = ordinary {
        complaints.extend(ordinary.left_behind()?);
    } else {
        println!("   as root: not run, since the caller is an ordinary user");
        if in_ci() {
            complaints.push("the run as root is missing, and CI needs both".to_owned());
        }
    }
    ensure!(complaints.is_empty(), "{}", complaints.join("\n"));
    Ok(())
}

/// Asks each executable for its tests; those without any are left out.
fn list<'a>(built: &'a Built, half: &Half, arguments: &[String]) -> Result<Vec<Listed<'a>>> {
    let mut all = Vec::new();
    for executable in built.tests() {
        let mut command = half.command(executable);
        command.args(["--list", "--format", "terse"]).args(arguments);
        let tests = libtest::listed(&child::stdout_of(&mut command, LIST_LIMIT)?);
        if tests > 0 {
            all.push(Listed { executable, tests });
        }
    }
    ensure!(!all.is_empty(), "there is no test to run");
    Ok(all)
}

/// What one half came to.
#[derive(Default)]
struct Run {
    counted: Tally,
    complained: Vec<String>,
}

/// Runs everything, however much of it fails.
fn run_half(half: &Half, listed: &[Listed<'_>], arguments: &[String]) -> Result<Run> {
    let mut all = Run::default();
    for Listed { executable, tests } in listed {
        let start = Instant::now();
        let (end, output) = child::read(half.command(executable).args(arguments), Streams::Both, RUN_LIMIT)?;
        // The last one: a test may run its own executable again, with its output going here.
        let run = libtest::runs(&output).last();
        let complaint = libtest::complaint(*tests, run).or((!end.success()).then(|| "all passed".to_owned()));
        if complaint.is_some() || !arguments.is_empty() {
            print!("{output}");
        }
        let (name, label) = (half.name(), executable.label());
        let passed = run.map_or(0, |run| run.passed);
        println!(
            "   {name:<13} {passed:>5} of {tests:>5} passed {:>7.1} s  {label}",
            start.elapsed().as_secs_f32()
        );
        all.counted.add(*tests, passed);
        all.complained.extend(complaint.map(|text| format!("{label}, {name}: {text}; {end}")));
    }
    Ok(all)
}
