//! Compares what attempts and controls got with what they must get.

use std::fmt;

use anyhow::{Result, ensure};

use crate::expected::{Control, Expected, TABLE};
use crate::run::{Guest, Outcomes};

/// One attempt, judged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judged {
    /// Who tried.
    pub guest: Guest,
    /// What the table says.
    pub expected: &'static Expected,
    /// What it got.
    pub got: String,
    /// What the control got; `-` if there is none.
    pub control: String,
    /// What follows.
    pub verdict: Verdict,
}

/// What came of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It got what it must.
    Held,
    /// It got something else.
    Escaped,
    /// It got what it must, but the control did not succeed, so that this proves nothing.
    Unproven,
    /// This machine lacks what it aims at.
    NotApplicable,
}

/// What the attacker gets where there is nothing to aim at.
const NOTHING_THERE: &str = "ok: absent";

pub(crate) fn judge(guest: Guest, attempts: &Outcomes, controls: &Outcomes) -> Result<Vec<Judged>> {
    let unknown: Vec<_> = attempts.keys().filter(|id| TABLE.iter().all(|row| row.id != **id)).collect();
    ensure!(unknown.is_empty(), "not in the table: {unknown:?}");
    let mut all = Vec::new();
    for expected in TABLE {
        let (Some(got), Some(control)) = (attempts.get(expected.id), controls.get(expected.id)) else {
            anyhow::bail!("{} was not tried", expected.id);
        };
        let verdict = verdict(expected, got, control);
        all.push(Judged { guest, expected, got: got.clone(), control: control.clone(), verdict });
    }
    Ok(all)
}

fn verdict(expected: &Expected, got: &str, control: &str) -> Verdict {
    if got == NOTHING_THERE {
        return Verdict::NotApplicable;
    }
    if !expected.gets.contains(&got) {
        return Verdict::Escaped;
    }
    let proven = match expected.control {
        Control::Succeeds => {
            control == "ok" || control.starts_with("ok: ") && !expected.gets.contains(&control)
        }
        Control::Gets(outcomes) => outcomes.contains(&control) && !expected.gets.contains(&control),
        Control::None(_) => control == "-",
    };
    if proven { Verdict::Held } else { Verdict::Unproven }
}

impl fmt::Display for Judged {
    /// Attempt, expected, got, control.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = format!("{} {}", self.guest.name(), self.expected.id);
        let gets = self.expected.gets.join(" or ");
        let control = match self.expected.control {
            Control::None(reason) => format!("none: {reason}"),
            _ => self.control.clone(),
        };
        let word = match self.verdict {
            Verdict::Held => "",
            Verdict::Escaped => "  ESCAPED",
            Verdict::Unproven => "  UNPROVEN",
            Verdict::NotApplicable => "  not applicable",
        };
        write!(f, "{name:<28} {gets:<28} {:<20} {control}{word}", self.got)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROW: Expected = Expected { id: "E0", gets: &["EPERM"], control: Control::Succeeds };

    #[test]
    fn another_error_than_the_expected_one_is_an_escape() {
        assert_eq!(verdict(&ROW, "EPERM", "ok"), Verdict::Held);
        for got in ["ok", "ok: 5 bytes", "EACCES", "SIGSYS", ""] {
            assert_eq!(verdict(&ROW, got, "ok"), Verdict::Escaped, "{got}");
        }
    }

    #[test]
    fn a_control_that_fails_proves_nothing() {
        for control in ["EPERM", "no namespaces for a control: EPERM", "-", ""] {
            assert_eq!(verdict(&ROW, "EPERM", control), Verdict::Unproven, "{control}");
        }
        let later = Expected { control: Control::Gets(&["EINVAL"]), ..ROW };
        assert_eq!(verdict(&later, "EPERM", "EINVAL"), Verdict::Held);
        assert_eq!(verdict(&later, "EPERM", "ok"), Verdict::Unproven);
    }
}
