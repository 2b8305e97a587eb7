//! Compares fields of a process and rows of lists, tables and trees.

use std::collections::HashMap;

use serde_json::Value;

use super::bytes;
use crate::scenario::expect::{Field, Row, Rows, Rule};

/// Pids by the names that scenarios use.
pub(super) type Pids = HashMap<String, u32>;

pub(super) fn row_complaints(row: &Row, reported: Option<&Value>, pids: &Pids) -> Vec<String> {
    let Some(process) = reported else { return vec!["nothing is reported".to_owned()] };
    row.iter()
        .filter_map(|(name, field)| {
            let value = process.get(name).unwrap_or(&Value::Null);
            field_complaint(field, value, pids).map(|text| format!("{name} {text}"))
        })
        .collect()
}

pub(super) fn rows_complaints(rows: &Rows, reported: Option<&Value>, pids: &Pids) -> Vec<String> {
    let Some(list) = reported.and_then(Value::as_array) else {
        return vec!["no list of processes is reported".to_owned()];
    };
    let mut wrong = Vec::new();
    if let Some(exactly) = &rows.exactly {
        if exactly.len() != list.len() {
            wrong.push(format!("{} processes, not {}: {}", list.len(), exactly.len(), shown(list)));
        }
        for (at, (row, process)) in exactly.iter().zip(list).enumerate() {
            let complaints = row_complaints(row, Some(process), pids);
            wrong.extend(complaints.into_iter().map(|text| format!("process {at}: {text}")));
        }
    }
    let all = flat(list);
    let has = |row: &Row| all.iter().any(|process| row_complaints(row, Some(process), pids).is_empty());
    if rows.include.iter().any(|row| !has(row)) {
        wrong.push(format!("a process is missing: {}", shown(list)));
    }
    if rows.exclude.iter().any(has) {
        wrong.push(format!("a process is there that may not be: {}", shown(list)));
    }
    wrong
}

fn field_complaint(field: &Field, value: &Value, pids: &Pids) -> Option<String> {
    let rule = match field {
        Field::Exactly(expected) => {
            return (value != expected).then(|| format!("is {value}, not {expected}"));
        }
        Field::Rule(rule) => rule,
    };
    match rule {
        Rule::Matches(pattern) => match value.as_str() {
            Some(text) => bytes::matching_complaint(pattern, text),
            None => Some(format!("is {value}, no text")),
        },
        Rule::AtLeast(least) => (value.as_f64().is_none_or(|number| number < *least))
            .then(|| format!("is {value}, less than {least}")),
        Rule::PidOf(name) => match pids.get(name) {
            Some(pid) => {
                (value.as_u64() != Some(u64::from(*pid))).then(|| format!("is {value}, not {pid} of {name}"))
            }
            None => Some(format!("cannot be compared: nothing named {name} has a pid")),
        },
        Rule::Has(row) => row_complaints(row, Some(value), pids).into_iter().next(),
        Rule::Include(rows) => {
            let rows = Rows { include: rows.clone(), ..Rows::default() };
            rows_complaints(&rows, Some(value), pids).into_iter().next()
        }
    }
}

/// All rows with all their children.
fn flat(list: &[Value]) -> Vec<&Value> {
    let mut all: Vec<&Value> = list.iter().collect();
    let mut next = 0;
    while let Some(process) = all.get(next) {
        let children = process.get("children").and_then(Value::as_array);
        all.extend(children.into_iter().flatten());
        next += 1;
    }
    all
}

/// What tells processes apart, for people.
fn shown(list: &[Value]) -> String {
    let one = |process: &&Value| {
        let told = ["pid", "command", "args", "status", "exitCode"].map(|name| process.get(name));
        let told = told.into_iter().flatten().filter(|value| !value.is_null());
        told.map(ToString::to_string).collect::<Vec<_>>().join(" ")
    };
    flat(list).iter().map(one).collect::<Vec<_>>().join(", ")
}
