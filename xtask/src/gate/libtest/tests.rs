//! The closing lines libtest really prints, and what the gate makes of them.

use super::{Counts, Tally, complaint, listed, runs};

const OUTPUT: &str = "
running 3 tests
test a ... ok
test b ... ignored
test c ... FAILED

test result: FAILED. 1 passed; 1 failed; 1 ignored; 0 measured; 7 filtered out; finished in 0.05s
";

const CLEAN: Counts = Counts { passed: 4, failed: 0, ignored: 0 };

#[test]
fn the_closing_line_gives_the_counts() {
    assert_eq!(runs(OUTPUT).collect::<Vec<_>>(), [Counts { passed: 1, failed: 1, ignored: 1 }]);
}

#[test]
fn each_run_has_its_own_closing_line() {
    assert_eq!(runs(&OUTPUT.repeat(3)).count(), 3);
    assert_eq!(runs("test result_is_kept ... ok\ntest result: odd\n").count(), 0);
}

#[test]
fn the_list_counts_tests_and_nothing_else() {
    assert_eq!(listed("id::tests::a: test\nb: test\nc: benchmark\n\n2 tests, 1 benchmark\n"), 2);
    assert_eq!(listed(""), 0);
}

#[test]
fn a_run_in_which_every_listed_test_passed_is_good() {
    assert_eq!(complaint(4, Some(CLEAN)), None);
}

#[test]
fn a_listed_test_that_did_not_pass_is_a_complaint() {
    for run in [
        None,
        Some(Counts { passed: 3, ..CLEAN }),
        Some(Counts { passed: 5, ..CLEAN }),
        Some(Counts { passed: 3, failed: 1, ..CLEAN }),
        Some(Counts { passed: 3, ignored: 1, ..CLEAN }),
    ] {
        assert!(complaint(4, run).is_some_and(|text| text.starts_with("4 listed")), "{run:?}");
    }
}

#[test]
fn what_did_not_pass_has_failed() {
    let mut tally = Tally::default();
    tally.add(4, 4);
    tally.add(3, 0);
    assert_eq!(tally.to_string(), "4 passed, 3 failed");
}
