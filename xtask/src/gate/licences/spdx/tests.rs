//! Expressions as crates write them, and what they ask for.

use super::Expression;

const ALLOWED: [&str; 3] = ["MIT", "Unicode-3.0", "Apache-2.0 WITH LLVM-exception"];

fn is_met(text: &str) -> bool {
    Expression::parse(text).unwrap().is_met_by(&ALLOWED)
}

#[test]
fn a_licence_must_be_on_the_list() {
    assert!(is_met("MIT"));
    assert!(!is_met("GPL-3.0-only"));
    assert!(!is_met("MIT+"), "a later version is another licence");
}

#[test]
fn one_side_of_or_suffices() {
    for text in ["MIT OR GPL-2.0", "GPL-2.0 OR MIT", "GPL-2.0/MIT", "GPL-2.0 / LGPL-2.1 / MIT"] {
        assert!(is_met(text), "{text}");
    }
    assert!(!is_met("GPL-2.0 OR LGPL-2.1"));
}

#[test]
fn and_needs_both_sides() {
    assert!(is_met("MIT AND Unicode-3.0"));
    assert!(!is_met("MIT AND GPL-2.0"));
}

#[test]
fn and_binds_tighter_than_or() {
    assert!(is_met("MIT OR GPL-2.0 AND GPL-3.0"));
    assert!(is_met("GPL-2.0 AND GPL-3.0 OR MIT"));
    assert!(!is_met("(MIT OR GPL-2.0) AND GPL-3.0"));
    assert!(is_met("((MIT OR GPL-2.0) AND Unicode-3.0)"));
}

#[test]
fn an_exception_belongs_to_its_licence() {
    assert!(is_met("Apache-2.0 WITH LLVM-exception OR GPL-2.0"));
    assert!(!is_met("Apache-2.0"), "only the form with its exception is on this list");
    assert!(!is_met("GPL-2.0 WITH Classpath-exception-2.0"));
}

#[test]
fn what_is_no_expression_is_refused() {
    for text in [
        "",
        "MIT OR",
        "OR MIT",
        "MIT Apache-2.0",
        "(MIT",
        "MIT)",
        "()",
        "MIT WITH",
        "MIT WITH AND",
        "MIT OR OR MIT",
    ] {
        assert!(Expression::parse(text).is_err(), "{text}");
    }
}
