//! The outcome for people: scenario × target, then what is wrong.

use std::fmt;

use crate::{
    run::{Cell, Outcome},
    target::Target,
};

/// Every word a cell may be told in.
const WORDS: [&str; 6] = ["holds", "diverges", "FAILS", "HANGS", "MISFILED", "not run"];

/// Cells of a run, shown as text.
#[derive(Debug)]
pub struct Table<'a>(pub &'a [Cell<'a>]);

impl Table<'_> {
    fn targets(&self) -> Vec<Target> {
        let mut targets: Vec<_> = self.0.iter().map(|cell| cell.target).collect();
        targets.dedup();
        targets
    }
}

impl fmt::Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let targets = self.targets();
        let mut names: Vec<_> = self.0.iter().map(|cell| cell.scenario.name.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        let width = names.iter().map(|name| name.len()).max().unwrap_or(0);
        write!(f, "{:width$}", "")?;
        for target in &targets {
            write!(f, "  {:>10}", target.name())?;
        }
        writeln!(f)?;
        for name in names {
            write!(f, "{name:width$}")?;
            for target in &targets {
                let cell = self.0.iter().find(|cell| cell.target == *target && cell.scenario.name == name);
                write!(f, "  {:>10}", cell.map_or("-", |cell| word(&cell.outcome)))?;
            }
            writeln!(f)?;
        }
        for cell in self.0.iter().filter(|cell| !cell.outcome.is_good()) {
            writeln!(f, "\n{} on {}: {}", cell.scenario.name, cell.target.name(), cell.scenario.about)?;
            for complaint in cell.outcome.complaints() {
                writeln!(f, "    {complaint}")?;
            }
        }
        for cells in self.0.chunk_by(|a, b| a.target == b.target) {
            write_sum(f, cells)?;
        }
        Ok(())
    }
}

/// What came of one target's cells, counted.
fn write_sum(f: &mut fmt::Formatter<'_>, cells: &[Cell<'_>]) -> fmt::Result {
    let count = |wanted| cells.iter().filter(|cell| word(&cell.outcome) == wanted).count();
    write!(f, "\n{}:", cells[0].target.name())?;
    for what in WORDS {
        let cells = count(what);
        if cells > 0 {
            write!(f, " {cells} {what}")?;
        }
    }
    if let Outcome::NotRun(reason) = &cells[0].outcome {
        write!(f, " ({reason})")?;
    }
    Ok(())
}

/// A cell in a word.
fn word(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Holds => "holds",
        Outcome::Fails(_) => "FAILS",
        Outcome::Hangs { .. } => "HANGS",
        Outcome::Diverges(_) => "diverges",
        Outcome::Misfiled(_) => "MISFILED",
        Outcome::NotRun(_) => "not run",
    }
}
