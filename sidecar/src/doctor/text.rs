//! A diagnosis for people.

use std::fmt;

use agentvm_wire::vm::{IsolationReport, LimitReport};
use anstyle::{AnsiColor, Style};

use super::{Diagnosis, Level};

const TITLE: Style = Style::new().bold();
const GOOD: Style = AnsiColor::Green.on_default();
const PART: Style = AnsiColor::Yellow.on_default();
const BAD: Style = AnsiColor::Red.on_default().bold();

/// Shown with colours; whoever writes it takes them out where there is no terminal.
pub(crate) struct Text<'a>(pub(crate) &'a Diagnosis);

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Diagnosis { version, kernel, arch, uid, levels, observer } = self.0;
        writeln!(f, "{TITLE}agentvm-sidecar {version}{TITLE:#}, Linux {kernel} on {arch}, as user {uid}")?;
        levels.iter().try_for_each(|level| write_level(f, level))?;
        observer.iter().try_for_each(|scope| write!(f, "\n{}", scope.render_summary()))?;
        if self.0.has_sandboxes() {
            writeln!(f, "\n{GOOD}This host can have sandboxes.{GOOD:#}")
        } else {
            writeln!(f, "\n{BAD}This host can have no sandboxes.{BAD:#} See docs/INSTALL.md.")
        }
    }
}

fn write_level(f: &mut fmt::Formatter<'_>, level: &Level) -> fmt::Result {
    let name = format!("{:?}", level.isolation).to_lowercase();
    match (&level.report, &level.failure) {
        (Some(report), _) => {
            let (style, word) = if report.partial.is_empty() { (GOOD, "yes") } else { (PART, "in part") };
            writeln!(f, "\n{TITLE}{name}{TITLE:#}: {style}{word}{style:#}")?;
            write_report(f, report)?;
        }
        (None, failure) => {
            writeln!(f, "\n{TITLE}{name}{TITLE:#}: {BAD}no{BAD:#}")?;
            failure.iter().try_for_each(|failure| writeln!(f, "  {}", failure.message))?;
        }
    }
    level.remedies.iter().try_for_each(|remedy| writeln!(f, "  {PART}to change:{PART:#} {remedy}"))
}

fn write_report(f: &mut fmt::Formatter<'_>, report: &IsolationReport) -> fmt::Result {
    let namespaces = if report.namespaces.is_some() { "its own" } else { "the host's" };
    let filters = if report.seccomp.mode == 2 { "in force" } else { "not in force" };
    let landlock =
        report.landlock.map_or("not in force".to_owned(), |landlock| format!("version {}", landlock.abi));
    writeln!(
        f,
        "  namespaces {namespaces}, seccomp {filters}, landlock {landlock}, guests are user {}",
        report.guest.uid
    )?;
    report.limits.iter().try_for_each(|limit| write_limit(f, limit))?;
    report
        .partial
        .iter()
        .try_for_each(|partial| writeln!(f, "  {PART}{}{PART:#}: {}", partial.what, partial.why))
}

fn write_limit(f: &mut fmt::Formatter<'_>, limit: &LimitReport) -> fmt::Result {
    let LimitReport { name, effective, enforced_by, missing, .. } = limit;
    match (effective, missing) {
        (Some(effective), _) => writeln!(f, "  {name}: {GOOD}{effective}{GOOD:#}, by {enforced_by}"),
        (None, Some(missing)) => writeln!(f, "  {name}: {PART}cannot be limited{PART:#}: {missing}"),
        (None, None) => writeln!(f, "  {name}: limited when asked for"),
    }
}
