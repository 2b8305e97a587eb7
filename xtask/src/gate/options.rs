//! What a developer may ask of the gate: only some steps, only some tests.

use anyhow::{Context, Result, bail, ensure};

use super::STEPS;

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Options {
    only: Vec<String>,
    /// Arguments for every test executable, after `--`.
    pub(super) libtest: Vec<String>,
}

impl Options {
    pub(crate) fn parse(words: &[String]) -> Result<Self> {
        let mut options = Self::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            match word.as_str() {
                "--" => options.libtest = words.by_ref().cloned().collect(),
                "--only" => {
                    let name = words.next().context("--only needs the name of a step")?;
                    ensure!(
                        STEPS.iter().any(|step| step.name == name),
                        "no step is named {name}, but: {}",
                        super::step_names()
                    );
                    options.only.push(name.clone());
                }
                other => bail!("{other} is no option of the gate; arguments for the tests come after --"),
            }
        }
        Ok(options)
    }

    pub(super) fn wants(&self, step: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|name| name == step)
    }
}
