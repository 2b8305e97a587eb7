//! The step `tests`: every test executable, once as the caller and, when that is root, once more as an ordinary user.
//!
//! Sandboxes are built differently for the two, so half a run proves half. A half that cannot run is said aloud, and
//! is a failure under CI. One follows the other: together they would take as long, and be in each other's way.

mod half;
mod ordinary;

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
    let mut complaints = run_half(&caller, &listed, &options.libtest, tally)?;
    if caller.is_root() {
        let ordinary = Half::ordinary(built, root)?;
        complaints.extend(run_half(&ordinary, &listed, &options.libtest, tally)?);
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

/// Runs everything, however much of it fails, and gives what is wrong with it.
fn run_half(
    half: &Half,
    listed: &[Listed<'_>],
    arguments: &[String],
    tally: &mut Tally,
) -> Result<Vec<String>> {
    let mut complaints = Vec::new();
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
        tally.add(*tests, passed);
        complaints.extend(complaint.map(|text| format!("{label}, {name}: {text}; {end}")));
    }
    Ok(complaints)
}
