//! Drivers that do not do as they should: each is a result, none a stuck run.

use std::{fs, path::Path, process::Command};

use super::driver;
use crate::scenario::{Scenario, parse};

fn scenario(limit_ms: u64) -> Scenario {
    let text = format!("about: a\nlimit_ms: {limit_ms}\nsteps:\n  - {{ op: exec, command: pwd }}");
    parse("area/name", &text).unwrap()
}

fn driven(script: &str, limit_ms: u64) -> anyhow::Result<driver::End> {
    let mut driver = Command::new("sh");
    driver.args(["-c", script]);
    let scenario = scenario(limit_ms);
    driver::run(driver, &scenario, scenario.limit())
}

#[test]
fn a_driver_that_hangs_is_killed_with_its_children() {
    // It has long named its child when the time is over: a shell writes at once.
    let end = driven(r#"sleep 600 & echo "{\"step\":$!}"; wait"#, 2_000).unwrap();
    assert!(!end.in_time);
    let child = end.reports[0].step;
    let cmdline = fs::read(Path::new("/proc").join(child.to_string()).join("cmdline")).unwrap_or_default();
    assert!(!cmdline.starts_with(b"sleep\x00600"), "the driver's child lives on");
}

#[test]
fn a_driver_that_fails_is_heard() {
    let end = driven("echo what went wrong >&2; exit 1", 30_000).unwrap();
    assert!(end.in_time && end.reports.is_empty());
    assert_eq!(end.stderr, "what went wrong\n");
}

#[test]
fn a_driver_that_talks_nonsense_is_an_error() {
    let error = driven("echo nonsense", 30_000).err().unwrap().to_string();
    assert_eq!(error, "the driver wrote no report: nonsense");
}

#[test]
fn a_driver_is_told_every_step_and_heard() {
    let end = driven(r#"read a; read b; echo "{\"step\":0}"; echo "{\"step\":1}"; read c"#, 30_000).unwrap();
    assert!(end.in_time);
    assert_eq!(end.reports.iter().map(|report| report.step).collect::<Vec<_>>(), [0, 1]);
}
