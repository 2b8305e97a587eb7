//! Groups as folders: making, setting, reading and removing them.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FlockOperation, Mode, OFlags, flock, fstat, openat, stat};
use rustix::io::{Errno, retry_on_intr};

use super::version::Setting;
use crate::isolation::fault::errno_of;

/// A group that is kept by a lock on its folder (`flock(2)`), which ends with whoever holds it.
#[derive(Debug)]
pub(super) struct Locked {
    pub path: PathBuf,
    _lock: OwnedFd,
}

impl Locked {
    /// Makes a group that nobody else may sweep away. Its name must be new.
    pub(super) fn make(path: &Path) -> Result<Self, Errno> {
        loop {
            make(path)?;
            // Another sidecar that starts may have found it before it was locked: once that has swept it away, again.
            match Self::lock(path, FlockOperation::LockExclusive) {
                Err(Errno::NOENT) => {}
                result => return result,
            }
        }
    }

    /// Takes a group whose maker is gone; EAGAIN while he lives.
    pub(super) fn take(path: &Path) -> Result<Self, Errno> {
        Self::lock(path, FlockOperation::NonBlockingLockExclusive)
    }

    /// ENOENT if it was swept away meanwhile.
    fn lock(path: &Path, operation: FlockOperation) -> Result<Self, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let lock = openat(CWD, path, flags, Mode::empty())?;
        retry_on_intr(|| flock(&lock, operation))?;
        if stat(path)?.st_ino == fstat(&lock)?.st_ino {
            Ok(Self { path: path.to_owned(), _lock: lock })
        } else {
            Err(Errno::NOENT)
        }
    }
}

pub(super) fn make(path: &Path) -> Result<(), Errno> {
    fs::create_dir(path).map_err(|error| errno_of(&error))
}

/// Writes settings; one that may be missing may be.
pub(super) fn set(group: &Path, settings: &[Setting]) -> Result<(), (Errno, PathBuf)> {
    for (file, value, required) in settings {
        let path = group.join(file);
        match write(&path, value) {
            Err(Errno::NOENT) if !required => {}
            result => result.map_err(|errno| (errno, path))?,
        }
    }
    Ok(())
}

pub(super) fn write(path: &Path, value: &str) -> Result<(), Errno> {
    let flags = OFlags::WRONLY | OFlags::CLOEXEC;
    let file = openat(CWD, path, flags, Mode::empty())?;
    rustix::io::write(&file, value.as_bytes()).map(drop)
}

/// What a file of a group holds; empty if it cannot be read.
pub(super) fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// Removes a group and all below it, as far as no process is in them any more. Whether it is gone.
pub(super) fn remove(group: &Path) -> bool {
    match rustix::fs::rmdir(group) {
        Ok(()) | Err(Errno::NOENT) => return true,
        Err(_) => {}
    }
    for entry in fs::read_dir(group).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove(&entry.path());
        }
    }
    matches!(rustix::fs::rmdir(group), Ok(()) | Err(Errno::NOENT))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn a_group_is_made_though_others_sweep_all_the_time() {
        let parent = std::env::temp_dir().join(format!("agentvm-{}", uuid::Uuid::new_v4().simple()));
        make(&parent).unwrap();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    for entry in fs::read_dir(&parent).unwrap().flatten() {
                        if let Ok(dead) = Locked::take(&entry.path()) {
                            remove(&dead.path);
                        }
                    }
                }
            });
            let made = (0..2000).try_for_each(|n| {
                let group = Locked::make(&parent.join(n.to_string()))?;
                assert!(group.path.is_dir());
                assert!(remove(&group.path));
                Ok::<_, Errno>(())
            });
            done.store(true, Ordering::Relaxed);
            made.unwrap();
        });
        assert!(remove(&parent));
    }
}
