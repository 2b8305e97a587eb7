//! The state folder: what a sidecar keeps on disk, which is the private folders of VMs without a root of their own.
//!
//! ```text
//!  $AGENTVM_STATE_DIR, else /var/tmp/agentvm-UID
//!  └── sidecar-ID       one sidecar's; locked (flock(2)) while that lives, made with its first such VM
//!      └── vm-ID        one VM's; removed by its supervisor
//! ```

use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use agentvm_wire::id::VmId;
use rustix::fs::{CWD, FlockOperation, Mode, OFlags, flock, openat};
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::isolation::private_folder::{self, PrivateFolder};
use crate::isolation::{At as _, Fault, Step};

/// Names another place.
const STATE_DIR_ENV: &str = "AGENTVM_STATE_DIR";

/// What the folders of all sidecars begin with.
const PREFIX: &str = "sidecar-";

/// One sidecar's folder, removed when dropped.
#[derive(Debug)]
pub(crate) struct State {
    path: PathBuf,
    _lock: OwnedFd,
}

impl State {
    /// Makes it.
    pub(crate) fn make() -> Result<Self, Fault> {
        let place = place();
        make_private(&place).or_else(|fault| if is_own_folder(&place) { Ok(()) } else { Err(fault) })?;
        // Swept away between the two calls, before it was locked: nobody else uses the name, so once more.
        loop {
            let path = place.join(format!("{PREFIX}{}", uuid::Uuid::new_v4().simple()));
            make_private(&path)?;
            if let Ok(lock) = lock(&path)
                && path.exists()
            {
                return Ok(Self { path, _lock: lock });
            }
        }
    }

    #[cfg(test)]
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Where a VM's private folder is to be made.
    pub(crate) fn folder_of(&self, vm: VmId) -> PrivateFolder {
        PrivateFolder::at(format!("{}/vm-{vm}", self.path.display()))
    }
}

impl Drop for State {
    fn drop(&mut self) {
        private_folder::remove(&self.path);
    }
}

/// Removes what sidecars of this user that were killed have left. Of those that live the folders are locked.
pub(crate) fn sweep() {
    let place = place();
    if !is_own_folder(&place) {
        return;
    }
    for entry in fs::read_dir(place).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(PREFIX)
            && let Ok(_lock) = lock(&entry.path())
        {
            private_folder::remove(&entry.path());
        }
    }
}

fn place() -> PathBuf {
    let named = std::env::var_os(STATE_DIR_ENV).and_then(|place| std::path::absolute(place).ok());
    named.unwrap_or_else(|| format!("/var/tmp/agentvm-{}", geteuid().as_raw()).into())
}

/// Guests with ids of their own go through it, and see nothing.
fn make_private(path: &Path) -> Result<(), Fault> {
    fs::DirBuilder::new()
        .mode(0o711)
        .create(path)
        .at_path(Step::PrivateFolder, path.as_os_str().as_encoded_bytes())
}

/// Whether it is there, and nobody else could have put it there.
fn is_own_folder(path: &Path) -> bool {
    fs::symlink_metadata(path)
        .is_ok_and(|meta| meta.is_dir() && meta.uid() == geteuid().as_raw() && meta.mode() & 0o022 == 0)
}

fn lock(path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let lock = openat(CWD, path, flags, Mode::empty())?;
    flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
    Ok(lock)
}
