//! The folder for temporary files of all drivers of a run, which nobody else enters: one TypeScript SDK leaves hundreds
//! behind.

use std::{
    env,
    fs::{self, DirBuilder},
    io,
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
    process,
};

/// The folder, removed when dropped.
pub(super) struct Scratch(PathBuf);

impl Scratch {
    pub(super) fn create() -> io::Result<Self> {
        let path = env::temp_dir().join(format!("agentvm-conformance-{}", process::id()));
        DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Self(path))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Best effort: nothing in it is of use to anybody.
        let _ = fs::remove_dir_all(&self.0);
    }
}
