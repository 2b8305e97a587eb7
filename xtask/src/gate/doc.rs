//! The step `doc`: the examples in the documentation compile and run.

use std::time::Duration;

use anyhow::{Result, ensure};

use super::Gate;
use super::libtest::{self, Counts};
use crate::cargo::cargo;
use crate::child::{self, Streams};

const LIMIT: Duration = Duration::from_secs(15 * 60);

pub(super) fn run(gate: &mut Gate) -> Result<()> {
    let mut command = cargo()?;
    command.args(["test", "--workspace", "--doc", "--no-fail-fast", "--"]).args(&gate.options.libtest);
    let (end, output) = child::read(&mut command, Streams::Stdout, LIMIT)?;
    let mut total = Counts::default();
    for run in libtest::runs(&output) {
        total += run;
    }
    let Counts { passed, failed, ignored } = total;
    gate.tally.add(passed + failed + ignored, passed);
    let good = end.success() && failed == 0 && ignored == 0;
    if !good {
        print!("{output}");
    }
    ensure!(good, "doc tests: {passed} passed, {failed} failed, {ignored} ignored; {end}");
    println!("   {passed} passed");
    Ok(())
}
