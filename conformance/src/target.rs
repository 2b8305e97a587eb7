//! The SDKs that scenarios run on, and how the driver of each is started.

use std::{env, path::PathBuf, process::Command};

use anyhow::{Context as _, Result};

/// One SDK.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Target {
    /// agentvm's own, in Rust.
    Rust,
}

impl Target {
    /// All, in the order of the table.
    pub const ALL: [Self; 1] = [Self::Rust];

    /// As it is written on the command line and in the table.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rust => "rust",
        }
    }

    /// The command that starts its driver.
    pub fn driver(self) -> Result<Command> {
        match self {
            Self::Rust => Ok(Command::new(beside_the_runner("driver-rust")?)),
        }
    }
}

fn beside_the_runner(program: &str) -> Result<PathBuf> {
    let runner = env::current_exe().context("this program has no path")?;
    Ok(runner.with_file_name(program))
}
