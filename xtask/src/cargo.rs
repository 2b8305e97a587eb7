//! How xtask starts cargo, and where the workspace is.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

/// The folder of the workspace: the one above this package's.
///
/// Read when running, not when compiling, so that a clone which was moved finds itself.
pub(crate) fn workspace_root() -> Result<PathBuf> {
    let package = env::var_os("CARGO_MANIFEST_DIR").context("start me as `cargo xtask`")?;
    Path::new(&package).parent().map(Path::to_owned).context("the xtask package lies in no workspace")
}

/// The cargo that started xtask, at the root of the workspace.
pub(crate) fn cargo() -> Result<Command> {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(workspace_root()?);
    forget_xtask(&mut command);
    Ok(command)
}

/// Removes what cargo told xtask about xtask's own package: a child would take it for its own, and a build script
/// that depends on such a variable would run anew at every change between this cargo and a developer's.
pub(crate) fn forget_xtask(command: &mut Command) {
    for (name, _) in env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&name);
        }
    }
}
