//! What holds passes, and each kind of expectation can fail.

use serde_json::json;

use super::complaints;
use crate::{
    report::Report,
    scenario::{Scenario, parse},
};

fn scenario(expect: &str) -> Scenario {
    let text = format!("about: a\nsteps:\n  - op: exec\n    command: pwd\n    expect: {expect}");
    parse("area/name", &text).unwrap()
}

/// What is wrong if the one step, after the VM's creation, came to this.
fn judged(expect: &str, report: serde_json::Value) -> Vec<String> {
    let mut report: Report = serde_json::from_value(report).unwrap();
    report.step = 1;
    complaints(&scenario(expect), &[Report::default(), report])
}

#[test]
fn what_is_expected_holds() {
    let report = json!({ "exit_code": 3, "stdout": "b3V0Cg==", "stderr": "", "signal": null });
    let expect = r#"{ exit_code: 3, stdout: "out\n", stderr: "", signal: none }"#;
    assert_eq!(judged(expect, report), [""; 0]);
}

#[test]
fn each_difference_is_told() {
    let report = json!({ "exit_code": 3, "stdout": "b3V0Cg==", "signal": "SIGKILL" });
    let expect = r#"{ exit_code: 4, stdout: "in\n", stderr: "", signal: none }"#;
    assert_eq!(
        judged(expect, report),
        [
            "step 1: exit code is 3, not 4",
            "step 1: signal is SIGKILL, not none",
            r#"step 1: stdout is "out\n", not "in\n""#,
            "step 1: stderr is not there",
        ]
    );
}

#[test]
fn bytes_may_be_counted_or_matched() {
    let report = json!({ "stdout": "b3V0Cg==" });
    assert_eq!(judged("{ stdout: { length: 4 } }", report.clone()), [""; 0]);
    assert_eq!(judged("{ stdout: { length: 5 } }", report.clone()), ["step 1: stdout has 4 bytes, not 5"]);
    assert_eq!(judged("{ stdout: { matches: '^o' } }", report.clone()), [""; 0]);
    assert_eq!(
        judged("{ stdout: { matches: '^x' } }", report),
        [r#"step 1: stdout "out\n" does not match ^x"#]
    );
}

#[test]
fn a_failure_nobody_expects_fails_the_step() {
    let report = json!({ "error": { "message": "no" } });
    assert_eq!(judged("{ exit_code: 0 }", report), ["step 1: failed: no"]);
}

#[test]
fn an_expected_failure_must_happen() {
    assert_eq!(judged("{ error: {} }", json!({ "exit_code": 0 })), ["step 1: did not fail, exit code is 0"]);
    let report = json!({ "error": { "message": "no such", "code": "ENOENT" } });
    assert_eq!(judged("{ error: no such }", report.clone()), [""; 0]);
    assert_eq!(judged("{ error: { code: ENOENT, matches: such } }", report.clone()), [""; 0]);
    assert_eq!(judged("{ error: other }", report.clone()), [r#"step 1: error is "no such", not "other""#]);
    assert_eq!(
        judged("{ error: { code: EIO } }", report),
        ["step 1: error code is ENOENT, not EIO: no such"]
    );
}

#[test]
fn rows_are_found_at_any_depth() {
    let report = json!({ "processes": [{ "pid": 1, "children": [{ "pid": 2, "status": "running" }] }] });
    assert_eq!(judged("{ processes: { include: [{ pid: 2 }] } }", report.clone()), [""; 0]);
    assert_eq!(judged("{ processes: { include: [{ pid: 3 }] } }", report.clone()).len(), 1);
    assert_eq!(judged("{ processes: { exclude: [{ status: running }] } }", report.clone()).len(), 1);
    let below = "{ processes: { include: [{ pid: 1, children: { include: [{ pid: 2 }] } }] } }";
    assert_eq!(judged(below, report), [""; 0]);
}

#[test]
fn a_list_may_be_told_exactly() {
    let report = json!({ "processes": [{ "pid": 1 }, { "pid": 2 }] });
    assert_eq!(
        judged("{ processes: { exactly: [{ pid: 1 }, { pid: 2, exitCode: null }] } }", report.clone()),
        [""; 0]
    );
    assert_eq!(judged("{ processes: { exactly: [{ pid: 2 }, { pid: 1 }] } }", report.clone()).len(), 2);
    assert_eq!(judged("{ processes: { exactly: [{ pid: 1 }] } }", report).len(), 1);
}

#[test]
fn fields_may_follow_rules() {
    let report = json!({ "process": { "pid": 7, "failure": "not found", "startedAt": 5 } });
    assert_eq!(
        judged("{ process: { failure: { matches: found }, startedAt: { at_least: 5 } } }", report.clone()),
        [""; 0]
    );
    assert_eq!(
        judged("{ process: { startedAt: { at_least: 6 } } }", report.clone()),
        ["step 1: startedAt is 5, less than 6"]
    );
    let unnamed = judged("{ process: { pid: { pid_of: other } } }", report);
    assert_eq!(unnamed, ["step 1: pid cannot be compared: nothing named other has a pid"]);
}

#[test]
fn a_driver_that_ends_early_is_told() {
    let wrong = complaints(&scenario("{}"), &[Report::default()]);
    assert_eq!(wrong, ["step 1: the driver ended without a report"]);
}
