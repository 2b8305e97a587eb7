//! The lists name scenarios that exist, and a listed divergence cannot rest on its laurels.

use std::{collections::HashMap, env, path::PathBuf};

use super::{Divergence, Divergences};
use crate::{run::Outcome, scenario, target::Target};

#[test]
fn every_listed_scenario_exists() {
    let folder = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap());
    let scenarios = scenario::all(&folder.join("scenarios")).unwrap();
    for (target, name) in Divergences::load(&folder).unwrap().listed() {
        assert!(scenarios.iter().any(|scenario| scenario.name == name), "{} lists {name}", target.name());
    }
}

#[test]
fn a_scenario_that_no_typescript_sdk_meets_has_a_note() {
    let folder = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap());
    let divergences = Divergences::load(&folder).unwrap();
    for scenario in scenario::all(&folder.join("scenarios")).unwrap() {
        let met = [Target::TsCurrent, Target::TsClassic]
            .iter()
            .any(|target| divergences.get(*target, &scenario.name).is_none());
        assert!(met || scenario.note.is_some(), "{} has no note", scenario.name);
    }
}

fn explained(unsteady: bool, outcome: Outcome) -> Outcome {
    let divergence =
        Divergence { does: String::new(), because: String::new(), unsteady, scenarios: Vec::new() };
    let list = Divergences(HashMap::from([((Target::TsCurrent, "area/name".to_owned()), divergence)]));
    list.explain(Target::TsCurrent, "area/name", outcome)
}

#[test]
fn what_is_listed_and_fails_diverges() {
    assert!(explained(false, Outcome::Fails(Vec::new())).is_good());
    assert!(explained(false, Outcome::Hangs { reports: 1 }).is_good());
}

#[test]
fn what_is_listed_and_holds_is_not_good() {
    assert_eq!(explained(false, Outcome::Holds), Outcome::HoldsThoughListed);
    assert!(!Outcome::HoldsThoughListed.is_good());
}

#[test]
fn what_holds_now_and_then_may_hold() {
    assert_eq!(explained(true, Outcome::Holds), Outcome::Holds);
}

#[test]
fn what_is_not_listed_stays_as_it_is() {
    let failed = Outcome::Fails(vec!["so".to_owned()]);
    assert_eq!(Divergences::default().explain(Target::Rust, "area/name", failed.clone()), failed);
}
