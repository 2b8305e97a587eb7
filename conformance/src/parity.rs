//! How much of what the TypeScript SDK's own tests and documentation show holds on it as a scenario.
//!
//! Where one of these is listed as a divergence, it is our reading of the API that is in doubt, not the SDK: so few may
//! be.

use std::fmt;

use crate::{divergence::Divergences, scenario::Scenario, target::Target};

/// One in so many may be listed.
const ONE_IN: usize = 10;
/// The SDK whose tests and documentation they are.
const REFERENCE: Target = Target::TsCurrent;

/// The scenarios taken from there.
#[derive(Debug)]
pub struct Parity<'a> {
    taken: usize,
    listed: Vec<&'a str>,
}

impl<'a> Parity<'a> {
    /// Counts them.
    pub fn of(scenarios: &'a [Scenario], divergences: &Divergences) -> Self {
        let taken: Vec<_> = scenarios.iter().filter(|scenario| scenario.from.is_some()).collect();
        let names = taken.iter().map(|scenario| scenario.name.as_str());
        let listed = names.filter(|name| divergences.get(REFERENCE, name).is_some()).collect();
        Self { taken: taken.len(), listed }
    }

    /// Whether few enough are listed.
    pub fn holds(&self) -> bool {
        self.listed.len() * ONE_IN <= self.taken
    }
}

impl fmt::Display for Parity<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { taken, listed } = self;
        let reference = REFERENCE.name();
        write!(
            f,
            "of {taken} scenarios from {reference}'s own tests and documentation {} differ",
            listed.len()
        )?;
        if !listed.is_empty() {
            write!(f, ": {}", listed.join(", "))?;
        }
        if !self.holds() {
            write!(f, "; at most one in {ONE_IN} may")?;
        }
        Ok(())
    }
}
