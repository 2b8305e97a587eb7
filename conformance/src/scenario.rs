//! A scenario: a VM, steps done to it one after another, and what each step must come to.

pub mod action;
pub mod data;
pub mod expect;
mod load;
#[cfg(test)]
mod tests;
pub mod wire;

use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;

pub use action::{Action, Create};
pub use expect::Expect;
pub use load::{LoadError, all, parse};

/// What one file under `scenarios/` says.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Where it lies, without the ending: `exec/exit_code`.
    #[serde(skip)]
    pub name: String,
    /// The behaviour it shows, as a sentence.
    pub about: String,
    /// Rows of the list of cases and numbers of the list of faults that it covers.
    #[serde(default)]
    pub covers: Vec<String>,
    /// Where in the TypeScript SDK's own tests and documentation it is taken from: a file of its repository, and the
    /// words that name the case there.
    pub from: Option<String>,
    /// Where the expectation comes from if no TypeScript SDK meets it: POSIX, a page of the Linux manual, the API's
    /// documentation.
    pub note: Option<String>,
    /// It runs on the client of the protocol, too, because it shows what the protocol itself promises.
    #[serde(default)]
    pub wire: bool,
    /// Bounds the whole scenario; a driver that has not reported every step by then hangs. What must not hold up a call
    /// lasts longer than this.
    #[serde(default = "default_limit_ms")]
    pub limit_ms: u64,
    /// The VM the steps are done to.
    #[serde(default)]
    pub vm: Create,
    /// In order.
    pub steps: Vec<Step>,
}

/// One call and what must come of it.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct Step {
    /// The call.
    #[serde(flatten)]
    pub action: Action,
    /// What must come of it; success and nothing more if not set.
    #[serde(default)]
    pub expect: Expect,
}

impl Scenario {
    /// The limit on a driver's time.
    pub fn limit(&self) -> Duration {
        Duration::from_millis(self.limit_ms)
    }

    /// Whether it needs a driver that speaks the protocol itself.
    pub fn is_wire_level(&self) -> bool {
        self.steps.iter().any(|step| step.action.is_wire_level())
    }

    /// What a driver is told to do, in order: the VM first.
    pub fn actions(&self) -> impl Iterator<Item = Action> + '_ {
        let create = Action::Create(self.vm.clone());
        std::iter::once(create).chain(self.steps.iter().map(|step| step.action.clone()))
    }
}

fn default_limit_ms() -> u64 {
    15_000
}
