//! Drivers that do not do as they should: each is a result, none a stuck run.

use std::{
    fs,
    path::Path,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use super::driver::{Driver, End, Performance};
use crate::scenario::{Scenario, parse};

fn scenario(limit_ms: u64) -> Scenario {
    let text = format!("about: a\nlimit_ms: {limit_ms}\nsteps:\n  - {{ op: exec, command: pwd }}");
    parse("area/name", &text).unwrap()
}

fn driver(script: &str) -> Driver {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    Driver::start(command).unwrap()
}

fn driven(script: &str, limit_ms: u64) -> anyhow::Result<Performance> {
    let scenario = scenario(limit_ms);
    driver(script).perform(&scenario, scenario.limit())
}

#[test]
fn a_driver_that_hangs_is_killed_with_its_children() {
    // It has long named its child when the time is over: a shell writes at once.
    let Performance { reports, end } = driven(r#"sleep 600 & echo "{\"step\":$!}"; wait"#, 2_000).unwrap();
    assert_eq!(end, End::Late);
    let child = reports[0].step;
    let cmdline = || fs::read(Path::new("/proc").join(child.to_string()).join("cmdline")).unwrap_or_default();
    // It is killed with the driver, but nobody here can wait for it.
    let killed = Instant::now();
    while cmdline().starts_with(b"sleep\x00600") {
        assert!(killed.elapsed() < Duration::from_secs(30), "the driver's child lives on");
        thread::yield_now();
    }
}

#[test]
fn a_driver_that_fails_is_heard() {
    let Performance { reports, end } = driven("echo what went wrong >&2; exit 1", 30_000).unwrap();
    assert!(reports.is_empty());
    assert_eq!(end, End::Ended("what went wrong\n".to_owned()));
}

#[test]
fn a_driver_that_talks_nonsense_is_an_error() {
    let error = driven("echo nonsense", 30_000).err().unwrap().to_string();
    assert_eq!(error, "the driver wrote no report: nonsense");
}

#[test]
fn a_driver_is_told_every_step_and_heard_scenario_after_scenario() {
    let scenario = scenario(30_000);
    let echo = r#"read order && echo "{\"step\":0}" && read order && echo "{\"step\":1}""#;
    let mut driver = driver(&format!("while {echo}; do :; done"));
    for _ in 0..2 {
        let Performance { reports, end } = driver.perform(&scenario, scenario.limit()).unwrap();
        assert_eq!(reports.iter().map(|report| report.step).collect::<Vec<_>>(), [0, 1]);
        assert_eq!(end, End::Complete);
    }
}
