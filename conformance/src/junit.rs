//! The outcome for machines: the XML of `JUnit`, one suite per target.

use std::fmt;

use crate::run::{Cell, Outcome};

/// Cells of a run, shown as `JUnit`.
#[derive(Debug)]
pub struct Junit<'a>(pub &'a [Cell<'a>]);

impl fmt::Display for Junit<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, r#"<?xml version="1.0" encoding="UTF-8"?>"#)?;
        writeln!(f, "<testsuites>")?;
        for cells in self.0.chunk_by(|a, b| a.target == b.target) {
            let failures = cells.iter().filter(|cell| !cell.outcome.is_good()).count();
            let name = cells[0].target.name();
            writeln!(f, r#"  <testsuite name="{name}" tests="{}" failures="{failures}">"#, cells.len())?;
            for cell in cells {
                write_case(f, cell)?;
            }
            writeln!(f, "  </testsuite>")?;
        }
        writeln!(f, "</testsuites>")
    }
}

fn write_case(f: &mut fmt::Formatter<'_>, cell: &Cell<'_>) -> fmt::Result {
    let (name, target) = (escaped(&cell.scenario.name), cell.target.name());
    let seconds = cell.took.as_secs_f64();
    write!(f, r#"    <testcase classname="{target}" name="{name}" time="{seconds:.3}""#)?;
    if let Outcome::NotRun(reason) = &cell.outcome {
        return writeln!(f, "><skipped message=\"{}\"/></testcase>", escaped(&reason.to_string()));
    }
    if cell.outcome.is_good() {
        return writeln!(f, "/>");
    }
    let complaints = escaped(&cell.outcome.complaints().join("\n"));
    writeln!(f, ">\n      <failure>{complaints}</failure>\n    </testcase>")
}

/// Text for XML; characters it has no place for become U+FFFD.
fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\n' | '\t' => safe.push(character),
            other if other.is_control() => safe.push(char::REPLACEMENT_CHARACTER),
            other => safe.push(other),
        }
    }
    safe
}
