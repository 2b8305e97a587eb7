//! The generated part of `conformance/README.md`: which scenario holds where, and what differs.

use std::fmt::{self, Formatter};

use crate::{divergence::Divergences, parity::Parity, scenario::Scenario, target::Target};

const BEGIN: &str = "<!-- What follows is generated. -->\n";
const END: &str = "<!-- What precedes is generated. -->\n";

/// All scenarios, and what is listed of them.
#[derive(Debug)]
pub struct Overview<'a> {
    /// Sorted by name.
    pub scenarios: &'a [Scenario],
    /// The lists of all targets.
    pub divergences: &'a Divergences,
}

impl Overview<'_> {
    /// A text with its generated part made anew; none if it has no place for it.
    pub fn renew(&self, text: &str) -> Option<String> {
        let (before, rest) = text.split_once(BEGIN)?;
        let (_, after) = rest.split_once(END)?;
        Some(format!("{before}{BEGIN}\n{self}\n{END}{after}"))
    }

    fn write_area(&self, f: &mut Formatter<'_>, scenarios: &[Scenario]) -> fmt::Result {
        writeln!(f, "### {}\n", area(&scenarios[0]))?;
        write!(f, "| scenario | shows |")?;
        for target in Target::ALL {
            write!(f, " {} |", target.name())?;
        }
        writeln!(f, "\n|---|---|{}", "---|".repeat(Target::ALL.len()))?;
        for scenario in scenarios {
            let name = scenario.name.trim_start_matches(area(scenario)).trim_start_matches('/');
            let taken = if scenario.from.is_some() { " †" } else { "" };
            write!(f, "| {name}{taken} | {} |", scenario.about)?;
            for target in Target::ALL {
                write!(f, " {} |", self.cell(target, scenario))?;
            }
            writeln!(f)?;
        }
        writeln!(f)
    }

    fn cell(&self, target: Target, scenario: &Scenario) -> String {
        if !target.takes(scenario) {
            return "-".to_owned();
        }
        let list = self.divergences.of(target);
        match list.iter().position(|divergence| divergence.scenarios.contains(&scenario.name)) {
            Some(at) => format!("[differs](#{})", anchor(target, at)),
            None => "holds".to_owned(),
        }
    }
}

impl fmt::Display for Overview<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { scenarios, divergences } = self;
        for target in Target::ALL {
            let listed =
                divergences.of(target).iter().map(|divergence| divergence.scenarios.len()).sum::<usize>();
            let taken = scenarios.iter().filter(|scenario| target.takes(scenario)).count();
            writeln!(f, "- **{}**: {} of {taken} hold", target.name(), taken - listed)?;
        }
        writeln!(f, "- †: {}\n", Parity::of(scenarios, divergences))?;
        for area in scenarios.chunk_by(|a, b| area(a) == area(b)) {
            self.write_area(f, area)?;
        }
        for target in Target::ALL.into_iter().filter(|target| target.is_published()) {
            writeln!(f, "## What differs on {}\n", target.name())?;
            for (at, divergence) in divergences.of(target).iter().enumerate() {
                write!(f, "{}. <a id=\"{}\"></a>", at + 1, anchor(target, at))?;
                writeln!(f, "**{}** {}", divergence.does, divergence.because)?;
                writeln!(f, "   ({})", divergence.scenarios.join(", "))?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

/// The folder a scenario lies in.
fn area(scenario: &Scenario) -> &str {
    scenario.name.split_once('/').map_or("", |(area, _)| area)
}

fn anchor(target: Target, at: usize) -> String {
    format!("{}-{}", target.name(), at + 1)
}
