//! What libtest prints, as numbers, and the rule that every listed test must have passed.

#[cfg(test)]
mod tests;

use std::fmt;
use std::ops::AddAssign;

/// The closing line of one libtest run, or several added up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) passed: usize,
    pub(super) failed: usize,
    pub(super) ignored: usize,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.ignored += other.ignored;
    }
}

/// The runs whose closing lines the output holds, in order.
pub(super) fn runs(output: &str) -> impl Iterator<Item = Counts> {
    output.lines().filter_map(closing_line)
}

/// `test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 2 filtered out; finished in 0.01s`
fn closing_line(line: &str) -> Option<Counts> {
    let (_, numbers) = line.strip_prefix("test result: ")?.split_once(". ")?;
    let mut parts = numbers.split("; ");
    let mut number = |word: &str| parts.next()?.strip_suffix(word)?.trim_end().parse().ok();
    Some(Counts { passed: number("passed")?, failed: number("failed")?, ignored: number("ignored")? })
}

/// The tests that `--list --format terse` names.
pub(super) fn names(output: &str) -> impl Iterator<Item = &str> {
    output.lines().filter_map(|line| line.strip_suffix(": test"))
}

/// How many they are.
pub(super) fn listed(output: &str) -> usize {
    names(output).count()
}

/// What is wrong with a run of that many listed tests; nothing if each of them passed.
///
/// An ignored test and one that a crash swallowed are wrong as well: a test that does not run protects nothing.
pub(super) fn complaint(listed: usize, run: Option<Counts>) -> Option<String> {
    let Some(Counts { passed, failed, ignored }) = run else {
        return Some(format!("{listed} listed, but it ended without a result"));
    };
    let agrees = passed == listed && failed == 0 && ignored == 0;
    (!agrees).then(|| format!("{listed} listed, {passed} passed, {failed} failed, {ignored} ignored"))
}

/// What the gate counted so far; its text is the closing line that CI reads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Tally {
    passed: usize,
    failed: usize,
}

impl Tally {
    /// Adds a run of that many tests: what did not pass has failed, whatever kept it from passing.
    pub(super) fn add(&mut self, expected: usize, passed: usize) {
        self.passed += passed;
        self.failed += expected.saturating_sub(passed);
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed", self.passed, self.failed)
    }
}
