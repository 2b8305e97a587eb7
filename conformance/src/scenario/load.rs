//! Reading scenario files: strict, so that a slip of the pen is an error and never an expectation that is not there.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use super::{Action, Scenario};

/// Why the scenarios could not be read.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The system's word.
    #[error("{path} cannot be read", path = path.display())]
    Read {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is no scenario.
    #[error("{name} is no scenario: {message}")]
    Parse {
        /// The scenario's name.
        name: String,
        /// What is wrong where.
        message: String,
    },
}

/// Every scenario under a folder, sorted by name.
pub fn all(folder: &Path) -> Result<Vec<Scenario>, LoadError> {
    let mut scenarios = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        let failed = |source| LoadError::Read { path: next.clone(), source };
        for item in fs::read_dir(&next).map_err(failed)? {
            let path = item.map_err(failed)?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ending| ending == "yaml") {
                scenarios.push(read(folder, &path)?);
            }
        }
    }
    scenarios.sort_by(|a: &Scenario, b| a.name.cmp(&b.name));
    Ok(scenarios)
}

fn read(folder: &Path, path: &Path) -> Result<Scenario, LoadError> {
    let text =
        fs::read_to_string(path).map_err(|source| LoadError::Read { path: path.to_owned(), source })?;
    let name = path.strip_prefix(folder).unwrap_or(path).with_extension("");
    parse(&name.to_string_lossy(), &text)
}

/// One scenario from its text.
pub fn parse(name: &str, text: &str) -> Result<Scenario, LoadError> {
    let wrong = |message: String| LoadError::Parse { name: name.to_owned(), message };
    let mut scenario: Scenario = serde_saphyr::from_str(text).map_err(|error| wrong(error.to_string()))?;
    if scenario.steps.iter().any(|step| matches!(step.action, Action::Create(_))) {
        return Err(wrong("the VM is created by the key vm, not by a step".to_owned()));
    }
    if scenario.is_wire_level() && !scenario.wire {
        return Err(wrong("steps that speak the protocol need wire: true".to_owned()));
    }
    name.clone_into(&mut scenario.name);
    Ok(scenario)
}
