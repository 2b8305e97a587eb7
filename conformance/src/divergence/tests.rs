//! The lists name scenarios that exist, and a listed divergence cannot rest on its laurels.

use std::{collections::BTreeMap, env, path::PathBuf};

use regex::Regex;

use super::{Divergence, Divergences, HANG_LIMIT};
use crate::{
    parity::Parity,
    run::Outcome,
    scenario::{self, Scenario},
    target::Target,
};

const NAME: &str = "area/name";

fn committed() -> (Vec<Scenario>, Divergences) {
    let folder = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap());
    (scenario::all(&folder.join("scenarios")).unwrap(), Divergences::load(&folder).unwrap())
}

#[test]
fn every_listed_scenario_exists() {
    let (scenarios, divergences) = committed();
    for target in Target::ALL {
        for name in divergences.of(target).iter().flat_map(|divergence| &divergence.scenarios) {
            assert!(
                scenarios.iter().any(|scenario| scenario.name == *name),
                "{} lists {name}",
                target.name()
            );
        }
    }
}

#[test]
fn a_scenario_that_no_published_sdk_meets_says_where_it_comes_from() {
    let (scenarios, divergences) = committed();
    for scenario in scenarios {
        let met = [Target::TsCurrent, Target::TsClassic]
            .iter()
            .any(|target| divergences.get(*target, &scenario.name).is_none());
        assert!(met || scenario.note.or(scenario.from).is_some(), "{} has no note", scenario.name);
    }
}

#[test]
fn the_reference_meets_what_is_taken_from_it() {
    let (scenarios, divergences) = committed();
    let parity = Parity::of(&scenarios, &divergences);
    assert!(parity.holds(), "{parity}");
}

fn list(shows: &str) -> Divergences {
    let divergence = Divergence {
        does: String::new(),
        because: String::new(),
        shows: Regex::new(shows).unwrap(),
        scenarios: vec![NAME.to_owned()],
    };
    Divergences(BTreeMap::from([(Target::TsCurrent, vec![divergence])]))
}

fn explained(outcome: Outcome) -> Outcome {
    list("is 9").explain(Target::TsCurrent, NAME, outcome)
}

fn failed() -> Outcome {
    Outcome::Fails(vec!["step 1: exit code is 9, not 137".to_owned()])
}

#[test]
fn what_differs_as_listed_diverges() {
    assert!(explained(failed()).is_good());
}

#[test]
fn what_differs_otherwise_than_listed_is_not_good() {
    let hangs = explained(Outcome::Hangs { reports: 1 });
    assert!(!hangs.is_good());
    assert_eq!(hangs.complaints().len(), 2, "{hangs:?}");
}

#[test]
fn what_is_listed_and_holds_is_not_good() {
    assert!(!explained(Outcome::Holds).is_good());
}

#[test]
fn what_is_not_listed_stays_as_it_is() {
    assert_eq!(Divergences::default().explain(Target::Rust, NAME, failed()), failed());
}

#[test]
fn a_known_hang_is_not_waited_for_long() {
    let scenario =
        scenario::parse(NAME, "about: a\nlimit_ms: 20000\nsteps:\n  - { op: exec, command: pwd }").unwrap();
    let limit = |shows| list(shows).limit(Target::TsCurrent, &scenario);
    assert_eq!(limit("no answer in time"), HANG_LIMIT);
    assert_eq!(limit("is 9"), scenario.limit() * Target::TsCurrent.patience());
}
