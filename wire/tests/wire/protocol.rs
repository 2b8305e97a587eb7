//! `PROTOCOL.md` leaves nothing out.

use std::{collections::BTreeSet, fs, path::Path};

use agentvm_wire::{
    error::Code,
    launch,
    message::{Event, Request, Response},
    protocol_md, schema,
    session::{self, Limits},
};
use serde_json::Value;

fn document() -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("PROTOCOL.md")).unwrap()
}

/// Each name occurs in the document, set as code.
fn assert_told<'a>(names: impl IntoIterator<Item = &'a str>) {
    let document = document();
    let untold: Vec<_> = names.into_iter().filter(|name| !document.contains(&format!("`{name}`"))).collect();
    assert!(untold.is_empty(), "PROTOCOL.md does not tell of {untold:?}");
}

#[test]
fn the_examples_are_fresh() {
    let document = document();
    let again = "cargo run -p agentvm-wire --features schema --example generate";
    assert!(protocol_md::with_examples(&document) == document, "stale examples: {again}");
}

#[test]
fn every_message_has_a_heading_and_an_example() {
    let document = document();
    for (folder, names) in
        [("client", Request::NAMES), ("sidecar", Response::NAMES), ("sidecar", Event::NAMES)]
    {
        for name in names {
            assert!(
                document.contains(&format!("<!-- golden/{folder}/{name}.json -->")),
                "no example of {name}"
            );
        }
    }
    for name in Request::NAMES.iter().chain(Event::NAMES) {
        assert!(document.contains(&format!("### `{name}`\n")), "no heading for {name}");
    }
    assert_told(Response::NAMES.iter().copied());
}

#[test]
fn every_error_code_is_told() {
    let codes = Code::ALL;
    assert_told(codes.iter().map(Code::as_str));
}

#[test]
fn every_limit_is_told_with_its_default() {
    let Value::Object(limits) = serde_json::to_value(Limits::default()).unwrap() else {
        panic!("limits are an object");
    };
    let document = document();
    let (_, section) = document.split_once("## 12. Limits").unwrap();
    for (name, default) in &limits {
        let row = section
            .lines()
            .find(|line| line.starts_with(&format!("| `{name}` |")))
            .unwrap_or_else(|| panic!("no row for {name}"));
        assert!(row.contains(&format!("| {default} |")), "{row} does not tell the default {default}");
    }
}

#[test]
fn every_field_and_every_choice_is_told() {
    fn walk(schema: &Value, names: &mut BTreeSet<String>) {
        if let Some(Value::Object(properties)) = schema.get("properties") {
            names.extend(properties.keys().cloned());
        }
        for choice in ["const", "enum"] {
            match schema.get(choice) {
                Some(Value::String(name)) => drop(names.insert(name.clone())),
                Some(Value::Array(all)) => {
                    names.extend(all.iter().filter_map(Value::as_str).map(str::to_owned));
                }
                _ => {}
            }
        }
        match schema {
            Value::Object(fields) => fields.values().for_each(|value| walk(value, names)),
            Value::Array(items) => items.iter().for_each(|value| walk(value, names)),
            _ => {}
        }
    }
    let mut names = BTreeSet::new();
    walk(&schema::client(), &mut names);
    walk(&schema::sidecar(), &mut names);
    walk(&schema::observer(), &mut names);
    assert_told(names.iter().map(String::as_str));
}

#[test]
fn the_names_of_launching_and_of_the_handshake_are_told() {
    assert_told([launch::SIDECAR_ARG0, launch::INHERITED_ARG, launch::LAUNCHED_ENV, session::SUBPROTOCOL]);
}
