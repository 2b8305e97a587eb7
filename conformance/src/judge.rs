//! Compares what a driver reported with what a scenario expects.

mod bytes;
mod field;
#[cfg(test)]
mod tests;

use std::collections::HashMap;

use crate::{
    report::{Failure, Report},
    scenario::{
        Action, Expect, Scenario,
        action::Spawn,
        expect::{Error, ErrorLike},
    },
};
use field::Pids;

/// What is wrong with a whole run, step by step; nothing if the scenario holds.
pub fn complaints(scenario: &Scenario, reports: &[Report]) -> Vec<String> {
    let created = Expect::default();
    let expectations = std::iter::once(&created).chain(scenario.steps.iter().map(|step| &step.expect));
    let mut pids = HashMap::new();
    let mut complaints = Vec::new();
    for (step, (action, expect)) in scenario.actions().zip(expectations).enumerate() {
        let Some(report) = reports.iter().find(|report| report.step == step) else {
            complaints.push(format!("step {step}: the driver ended without a report"));
            break;
        };
        if let (Action::Spawn(Spawn { name, .. }), Some(pid)) = (&action, report.pid) {
            pids.insert(name.clone(), pid);
        }
        let wrong = compare(expect, report, &pids);
        complaints.extend(wrong.into_iter().map(|text| format!("step {step}: {text}")));
    }
    complaints
}

fn compare(expect: &Expect, report: &Report, pids: &Pids) -> Vec<String> {
    let mut wrong = Vec::new();
    match (&expect.error, &report.error) {
        (None, Some(Failure { message, .. })) => return vec![format!("failed: {message}")],
        (Some(_), None) => {
            let code = report.exit_code.map(|code| format!(", exit code is {code}"));
            wrong.push(format!("did not fail{}", code.unwrap_or_default()));
        }
        (Some(expected), Some(failure)) => wrong.extend(failure_complaint(expected, failure)),
        (None, None) => {}
    }
    if let Some(code) = expect.exit_code
        && report.exit_code != Some(code)
    {
        wrong.push(format!("exit code is {}, not {code}", shown(report.exit_code)));
    }
    if let Some(signal) = &expect.signal {
        let reported = report.signal.as_deref().unwrap_or("none");
        if reported != signal {
            wrong.push(format!("signal is {reported}, not {signal}"));
        }
    }
    for (name, expected, reported) in
        [("stdout", &expect.stdout, &report.stdout), ("stderr", &expect.stderr, &report.stderr)]
    {
        if let Some(expected) = expected {
            let complaint = match reported {
                Some(blob) => bytes::complaint(expected, &blob.0),
                None => Some("is not there".to_owned()),
            };
            wrong.extend(complaint.map(|text| format!("{name} {text}")));
        }
    }
    for (row, reported) in [(&expect.process, &report.process), (&expect.message, &report.message)] {
        if let Some(row) = row {
            wrong.extend(field::row_complaints(row, reported.as_ref(), pids));
        }
    }
    if let Some(rows) = &expect.processes {
        wrong.extend(field::rows_complaints(rows, report.processes.as_ref(), pids));
    }
    wrong
}

fn failure_complaint(expected: &Error, failure: &Failure) -> Option<String> {
    let Failure { message, code } = failure;
    match expected {
        Error::Message(text) => (message != text).then(|| format!("error is {message:?}, not {text:?}")),
        Error::Like(ErrorLike { code: expected, matches }) => {
            if expected.is_some() && code != expected {
                return Some(format!(
                    "error code is {}, not {}: {message}",
                    shown(code.as_ref()),
                    shown(expected.as_ref())
                ));
            }
            let pattern = matches.as_deref()?;
            bytes::matching_complaint(pattern, message).map(|text| format!("error {text}"))
        }
    }
}

fn shown(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "none".to_owned(), |value| value.to_string())
}
