//! The folder for temporary files of all drivers of a run: one TypeScript SDK leaves hundreds behind.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
    process,
};

/// The folder, removed when dropped.
pub(super) struct Scratch(PathBuf);

impl Scratch {
    pub(super) fn create() -> io::Result<Self> {
        let path = env::temp_dir().join(format!("agentvm-conformance-{}", process::id()));
        fs::create_dir(&path)?;
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
