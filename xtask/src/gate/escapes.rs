//! `cargo xtask escapes`: every escape attempt, made against VMs of root's sidecar and of an ordinary user's.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};

use super::suite::Half;
use super::{Gate, Options, Tally, build};
use crate::cargo::workspace_root;
use crate::child::{self, Streams};

const LIMIT: Duration = Duration::from_secs(10 * 60);

/// Its last line is `N attempts, N escaped, N not applicable`.
pub(crate) fn run() -> Result<ExitCode> {
    let mut gate =
        Gate { root: workspace_root()?, options: Options::default(), built: None, tally: Tally::default() };
    build::run(&mut gate)?;
    let built = gate.built()?;
    let caller = Half::caller(built, &gate.root)?;
    let ordinary = caller.is_root().then(|| Half::ordinary(built, &gate.root)).transpose()?;
    if ordinary.is_none() {
        println!("as root: not tried, since the caller is an ordinary user");
    }
    let mut good = true;
    let mut sum = [0; 3];
    for half in std::iter::once(caller).chain(ordinary) {
        println!("── {}", half.name());
        let (end, output) = child::read(&mut half.command(built.binary("escapes")?), Streams::Both, LIMIT)?;
        let counts = counts(&output).with_context(|| format!("nothing was counted; {end}\n{output}"))?;
        print!("{output}");
        good &= end.success();
        sum = [0, 1, 2].map(|place| sum[place] + counts[place]);
        if let Some(complaint) = half.left_behind()? {
            println!("{complaint}");
            good = false;
        }
    }
    let [attempts, escaped, absent] = sum;
    println!("\n{attempts} attempts, {escaped} escaped, {absent} not applicable");
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn counts(output: &str) -> Option<[usize; 3]> {
    let mut parts = output.lines().last()?.split(", ");
    let mut number = |words: &str| parts.next()?.strip_suffix(words)?.trim_end().parse().ok();
    Some([number("attempts")?, number("escaped")?, number("not applicable")?])
}
