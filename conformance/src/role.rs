//! What this program is: the runner starts itself under other names, so that what it runs is never an older build.

use std::{env, ffi::OsStr, io, os::unix::process::CommandExt as _, process::Command};

/// By the name it was started under.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Runs the scenarios.
    Runner,
    /// The driver over our own SDK.
    Driver,
    /// The sidecar that clients of the protocol connect to.
    Sidecar,
}

impl Role {
    /// What this process was started as.
    pub fn own() -> Self {
        let name = env::args_os().next();
        [Self::Driver, Self::Sidecar]
            .into_iter()
            .find(|role| name.as_deref() == Some(OsStr::new(role.name())))
            .unwrap_or(Self::Runner)
    }

    fn name(self) -> &'static str {
        match self {
            Self::Runner => "conformance",
            Self::Driver => "driver-rust",
            Self::Sidecar => "conformance-sidecar",
        }
    }

    /// The command that starts it.
    pub(crate) fn command(self) -> io::Result<Command> {
        let mut command = Command::new(env::current_exe()?);
        command.arg0(self.name());
        Ok(command)
    }
}
