//! Nothing is left out on either side, and the page says so.

use std::{collections::BTreeSet, env, fs, path::PathBuf};

use super::{Api, map::Map, members::Members, page::Page, surface::Surface};
use crate::target::Target;

/// What to do if one of the first two fails.
const HINT: &str =
    "place it in conformance/api/map.yaml, then: cargo run -p agentvm-conformance --bin conformance-api";

fn folder() -> PathBuf {
    PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo and the gate say where the package is"))
}

#[test]
fn every_member_and_every_item_has_its_place() {
    let complaints = Api::read(&folder()).unwrap().complaints();
    assert!(complaints.is_empty(), "{}\n{HINT}", complaints.join("\n"));
}

#[test]
fn committed_page_is_fresh() {
    let api = Api::read(&folder()).unwrap();
    let committed = fs::read_to_string(folder().join("API.md")).unwrap();
    assert!(committed == Page(&api).to_string(), "API.md is not fresh: {HINT}");
}

#[test]
fn the_crate_is_read_to_the_methods_that_a_macro_writes() {
    let Surface(items) = Api::read(&folder()).unwrap().surface;
    for item in [
        "AgentOs::exec",
        "ExecOptions::env",
        "ExecResult::stdout",
        "ExitCause::Timeout",
        "Output::Gap",
        "wire",
    ] {
        assert!(items.contains(item), "{item} is missing");
    }
    for item in ["Output::stream", "Sidecar::link", "now_ms"] {
        assert!(!items.contains(item), "{item} is not public");
    }
}

fn api(members: &[&str], items: &[&str], map: &str) -> Api {
    let targets = BTreeSet::from([Target::TsCurrent]);
    Api {
        members: Members(members.iter().map(|name| ((*name).to_owned(), targets.clone())).collect()),
        surface: Surface(items.iter().map(|name| (*name).to_owned()).collect()),
        map: serde_saphyr::from_str::<Map>(map).unwrap(),
    }
}

const MAP: &str = "
answered: { Vm: Machine, Vm.run: 'Machine::exec' }
not_yet: [{ step: files, members: [Vm.files] }]
out_of_scope: [{ instead: nothing, members: [Kernel] }]
only_in_rust: [{ because: rust, items: ['Machine::*'] }]
";
const MEMBERS: [&str; 6] = ["Kernel", "Kernel.open", "Vm", "Vm.files", "Vm.files.read", "Vm.run"];
const ITEMS: [&str; 3] = ["Machine", "Machine::exec", "Machine::own"];

#[test]
fn a_place_counts_for_what_lies_below() {
    assert_eq!(api(&MEMBERS, &ITEMS, MAP).complaints(), Vec::<String>::new());
}

#[test]
fn what_is_named_alike_answers() {
    let members = [MEMBERS.as_slice(), &["Vm.stopNow"]].concat();
    let api = api(&members, &[ITEMS.as_slice(), &["Machine::stop_now"]].concat(), MAP);
    assert_eq!(api.complaints(), Vec::<String>::new());
    assert!(Page(&api).to_string().contains("| `stopNow` | current | `Machine::stop_now` |"));
}

#[test]
fn a_member_that_appears_is_told() {
    let complaints = api(&[MEMBERS.as_slice(), &["Vm.sleep"]].concat(), &ITEMS, MAP).complaints();
    assert_eq!(complaints, ["Vm.sleep of the published SDKs has no place in map.yaml"]);
}

#[test]
fn a_member_that_vanishes_is_told() {
    let complaints = api(&MEMBERS[..5], &ITEMS, MAP).complaints();
    assert!(complaints[0].starts_with("Vm.run has a place in map.yaml"), "{complaints:?}");
}

#[test]
fn an_item_that_appears_is_told() {
    let complaints = api(&MEMBERS, &[ITEMS.as_slice(), &["Other"]].concat(), MAP).complaints();
    assert_eq!(complaints, ["Other of our crate has no place in map.yaml"]);
}

#[test]
fn an_item_that_vanishes_is_told() {
    let complaints = api(&MEMBERS, &["Machine", "Machine::own"], MAP).complaints();
    assert_eq!(complaints, ["Machine::exec is to answer to a member, but our crate has no such item"]);
}
