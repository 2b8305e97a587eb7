//! `cargo xtask escapes`: every escape attempt, made against VMs of root's sidecar and of an ordinary user's.
//!
//! What the guest itself sees is tried by the attacker. What only shows from outside is a test, whose name begins with
//! the row it belongs to: `e64_…`.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};

use super::suite::Half;
use super::{Gate, Options, Tally, build, libtest};
use crate::cargo::workspace_root;
use crate::child::{self, Streams};

const LIMIT: Duration = Duration::from_secs(10 * 60);

/// How many attempts were made, how many succeeded or prove nothing, and how many this machine cannot be tried with.
type Counts = [usize; 3];

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
        add(&mut sum, counts);
        for executable in built.tests() {
            add(&mut sum, from_outside(&half, executable)?);
        }
        if let Some(complaint) = half.left_behind()? {
            println!("{complaint}");
            good = false;
        }
    }
    let [attempts, escaped, absent] = sum;
    println!("\n{attempts} attempts, {escaped} escaped, {absent} not applicable");
    Ok(if good && escaped == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn add(sum: &mut Counts, more: Counts) {
    for (sum, more) in sum.iter_mut().zip(more) {
        *sum += more;
    }
}

fn counts(output: &str) -> Option<Counts> {
    let mut parts = output.lines().last()?.split(", ");
    let mut number = |words: &str| parts.next()?.strip_suffix(words)?.trim_end().parse().ok();
    Some([number("attempts")?, number("escaped")?, number("not applicable")?])
}

/// Runs an executable's tests that are attempts. One that does not pass has let something through.
fn from_outside(half: &Half, executable: &build::Executable) -> Result<Counts> {
    let mut list = half.command(executable);
    let list = child::stdout_of(list.args(["--list", "--format", "terse"]), LIMIT)?;
    let attempts: Vec<_> = libtest::names(&list).filter(|name| is_attempt(name)).collect();
    if attempts.is_empty() {
        return Ok([0; 3]);
    }
    let mut run = half.command(executable);
    run.args(["--exact", "--nocapture", "--test-threads=1"]).args(&attempts);
    let (end, output) = child::read(&mut run, Streams::Both, LIMIT)?;
    let passed = libtest::runs(&output).last().map_or(0, |run| run.passed);
    let skipped = output.lines().filter(|line| line.contains("skipped: ")).count();
    for line in output.lines().filter(|line| line.starts_with("test ") || line.contains("skipped: ")) {
        println!("{line}");
    }
    if passed < attempts.len() {
        println!("{output}\n{end}");
    }
    Ok([attempts.len(), attempts.len() - passed, skipped])
}

/// Whether a test's name says that it is one: `module::e64_what_holds`.
fn is_attempt(name: &str) -> bool {
    let function = name.rsplit("::").next().unwrap_or(name);
    let row = function.strip_prefix('e').and_then(|rest| rest.split_once('_'));
    row.is_some_and(|(number, _)| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_is_an_attempt_if_its_name_begins_with_a_row() {
        for name in ["storms::e64_a_fork_bomb", "e1_x"] {
            assert!(is_attempt(name), "{name}");
        }
        for name in ["e64::a_fork_bomb", "each_process_has_one_row", "e_1", "exec", "c74_execs", "e64"] {
            assert!(!is_attempt(name), "{name}");
        }
    }

    #[test]
    fn the_last_line_holds_the_counts() {
        assert_eq!(counts("x\n422 attempts, 1 escaped, 6 not applicable\n"), Some([422, 1, 6]));
        for wrong in ["", "422 attempts", "a attempts, 0 escaped, 6 not applicable"] {
            assert_eq!(counts(wrong), None, "{wrong}");
        }
    }
}
