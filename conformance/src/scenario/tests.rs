//! Scenario files are read strictly, and the committed schema is the one of what is read.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde_json::Value;

use super::{all, parse};

fn here(path: &str) -> PathBuf {
    let package =
        std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo and the gate say where the package is");
    Path::new(&package).join(path)
}

fn committed_schema() -> Value {
    let text = fs::read_to_string(here("scenario.schema.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

#[test]
fn every_scenario_is_valid_by_the_schema() {
    let validator = jsonschema::validator_for(&committed_schema()).unwrap();
    for scenario in all(&here("scenarios")).unwrap() {
        let text = fs::read_to_string(here("scenarios").join(&scenario.name).with_extension("yaml")).unwrap();
        let value: Value = serde_saphyr::from_str(&text).unwrap();
        let errors: Vec<_> = validator.iter_errors(&value).map(|error| error.to_string()).collect();
        assert!(errors.is_empty(), "{}: {errors:?}", scenario.name);
    }
}

#[test]
fn every_scenario_expects_something() {
    for scenario in all(&here("scenarios")).unwrap() {
        assert!(!scenario.steps.is_empty(), "{} has no steps", scenario.name);
        assert!(scenario.about.ends_with('.'), "{} is not about a sentence", scenario.name);
    }
}

fn refusal(steps: &str) -> String {
    parse("area/name", &format!("about: a\nsteps:\n{steps}")).unwrap_err().to_string()
}

#[test]
fn a_misspelt_expectation_is_refused() {
    let error = refusal("  - { op: exec, command: pwd, expect: { exitcode: 0 } }");
    assert!(error.contains("exitcode"), "{error}");
}

#[test]
fn a_misspelt_option_is_refused() {
    let error = refusal("  - { op: exec, command: pwd, cvd: /tmp }");
    assert!(error.contains("cvd"), "{error}");
}

#[test]
fn an_unknown_action_is_refused() {
    let error = refusal("  - { op: exce, command: pwd }");
    assert!(error.contains("exce"), "{error}");
}

#[test]
fn steps_that_speak_the_protocol_are_for_its_client() {
    let error = refusal("  - { op: connect, as: stranger }");
    assert!(error.contains("wire: true"), "{error}");
}

#[test]
fn steps_do_not_create_the_vm() {
    let error = refusal("  - { op: create }");
    assert!(error.contains("key vm"), "{error}");
}
