//! What a VM without a root of its own has for itself: one folder of the host with its home, temporary files and working
//! directory.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::fs::CWD;
use rustix::process::geteuid;
use serde::{Deserialize, Serialize};

use super::path::{Owner, make_folder};
use super::{Fault, Step};

/// Where it is; removed by the supervisor when the VM has ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PrivateFolder(String);

impl PrivateFolder {
    /// Nobody but this sidecar makes anything there.
    pub(crate) fn at(path: String) -> Self {
        Self(path)
    }

    pub(crate) fn path(&self) -> &str {
        &self.0
    }

    pub(crate) fn home(&self) -> String {
        format!("{}/home", self.0)
    }

    pub(crate) fn tmp(&self) -> String {
        format!("{}/tmp", self.0)
    }

    pub(crate) fn workspace(&self) -> String {
        format!("{}/workspace", self.0)
    }

    /// Makes it, for the guest alone.
    pub(crate) fn make(&self, owner: u32) -> Result<(), Fault> {
        [self.0.clone(), self.home(), self.tmp(), self.workspace()]
            .iter()
            .try_for_each(|path| make_folder(Step::PrivateFolder, CWD, path, 0o700, Some(Owner::id(owner))))
    }

    /// Removes it with all that is in it.
    pub(crate) fn remove(&self) {
        remove(Path::new(&self.0));
    }
}

/// Removes a folder in which nobody works any more; what is in there may have any mode.
pub(crate) fn remove(folder: &Path) {
    // Root needs no modes, and must not follow a link that a guest may still have put there: to its own user that guest can
    // do no more than it could do itself.
    if fs::remove_dir_all(folder).is_err() && !geteuid().is_root() {
        open_up(folder);
        // What still cannot be removed stays for the next sidecar.
        let _ = fs::remove_dir_all(folder);
    }
}

/// Gives every folder below a mode that lets it be emptied.
fn open_up(folder: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    let mut pending: Vec<PathBuf> = vec![folder.to_owned()];
    while let Some(folder) = pending.pop() {
        let _ = fs::set_permissions(&folder, fs::Permissions::from_mode(0o700));
        let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
        pending.extend(
            entries
                .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
                .map(|entry| entry.path()),
        );
    }
}
