//! `cargo xtask`: the project's own commands, none of which needs more than a Rust machine.

mod bench;
mod cargo;
mod child;
mod fuzz;
mod gate;
mod soak;

use std::env;
use std::process::ExitCode;

use anyhow::{Context as _, Result};

const USAGE: &str = "\
cargo xtask test [--only STEP]... [-- LIBTEST ARGUMENTS]
    The whole gate. --only runs just that step and the build it needs; what follows -- goes to every test
    executable, for example a part of a test's name.
cargo xtask escapes
    Tries what hostile guests try, and prints attempt, expected, got and positive control.
cargo xtask fuzz [SECONDS]
    Fuzzes what a guest can say to the sidecar, each target so long (60). Needs a C++ compiler.
cargo xtask bench [-- ARGUMENTS]
    The benches of the sidecar, and an exec beside each storm (`storms`), in the release profile.
cargo xtask soak
    Memory and speed over 100 000 execs and with 1000 VMs, and what is left of these and of 500 creations under random
    kills; in the release profile.";

fn main() -> ExitCode {
    let words: Vec<String> = env::args().skip(1).collect();
    dispatch(&words).unwrap_or_else(|error| {
        eprintln!("xtask: {error:#}");
        ExitCode::FAILURE
    })
}

fn dispatch(words: &[String]) -> Result<ExitCode> {
    match words.split_first().map(|(verb, rest)| (verb.as_str(), rest)) {
        Some(("test", rest)) => gate::run(gate::Options::parse(rest)?),
        Some(("escapes", [])) => gate::escapes::run(),
        Some(("fuzz", [])) => fuzz::run(None),
        Some(("fuzz", [seconds])) => fuzz::run(Some(seconds.parse().context("seconds are a number")?)),
        Some(("bench", rest)) => bench::run(rest),
        Some(("soak", [])) => soak::run(),
        None | Some(("help" | "--help" | "-h", _)) => {
            println!("{USAGE}\n\nSteps of the gate: {}", gate::step_names());
            Ok(ExitCode::SUCCESS)
        }
        Some((other, _)) => anyhow::bail!("no command is named {other}\n\n{USAGE}"),
    }
}
