//! Ranges of uids: each VM of a sidecar that is root gets 65 536 of its own, and several sidecars share the pool.
//!
//! A range is taken by holding a `flock(2)` on its file below `/run/agentvm/uid-ranges`. The kernel lets go of it when
//! the holder ends, however it ends. A file whose lock was taken is removed when it is given back; so whoever has just
//! locked a file checks that it is still the one with that name. What a sidecar that was killed has left is unlocked, and
//! removed by the next one that starts.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::{
    AtFlags, CWD, Dir, FlockOperation, Mode, OFlags, flock, fstat, mkdirat, openat, statat, unlinkat,
};
use rustix::io::Errno;

use super::identity::{self, RANGE};
use super::{At as _, Fault, Step};

const FOLDER: &str = "/run/agentvm/uid-ranges";

/// The first id of the pool: far above what hosts give to people, services and subordinate ids.
const FIRST_ID: u32 = 1 << 30;

/// Ranges in the pool; it ends at 2^31.
const RANGES: u32 = (1 << 30) / RANGE;

/// Whether this process can use the pool: it is root, and the ids are its to give.
pub(crate) fn are_ours() -> bool {
    identity::is_root_over(FIRST_ID..FIRST_ID + RANGES * RANGE)
}

/// A range that is taken until this is dropped.
#[derive(Debug)]
pub(crate) struct UidRange {
    number: u32,
    folder: Arc<OwnedFd>,
    _lock: OwnedFd,
}

impl UidRange {
    /// Its first id.
    pub(crate) fn first_id(&self) -> u32 {
        FIRST_ID + self.number * RANGE
    }
}

impl Drop for UidRange {
    /// Removes the file while it is still locked; the lock goes with the descriptor.
    fn drop(&mut self) {
        // A file that stays behind is unlocked, and taken again by the next that comes by.
        let _ = unlinkat(&*self.folder, self.number.to_string(), AtFlags::empty());
    }
}

/// The pool, as one sidecar sees it.
#[derive(Debug)]
pub(crate) struct UidRanges {
    folder: Arc<OwnedFd>,
    /// Where to look next: behind the last one taken, so that looking is not a search.
    next: AtomicU32,
}

impl UidRanges {
    /// Opens the pool and removes what nobody holds any more; `start` spreads the sidecars of a host over it.
    pub(crate) fn open(start: u32) -> Result<Self, Fault> {
        for folder in ["/run/agentvm", FOLDER] {
            match mkdirat(CWD, folder, Mode::RWXU) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(errno) => return Err(Fault::about(Step::UidRange, errno, folder)),
            }
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let folder = openat(CWD, FOLDER, flags, Mode::empty()).at_path(Step::UidRange, FOLDER)?;
        let pool = Self { folder: Arc::new(folder), next: AtomicU32::new(start % RANGES) };
        pool.sweep().at_path(Step::UidRange, FOLDER)?;
        Ok(pool)
    }

    /// A range that can be taken, though it has a file, is nobody's: taking it and giving it back removes the file.
    fn sweep(&self) -> rustix::io::Result<()> {
        for entry in Dir::read_from(&*self.folder)? {
            let number = entry?.file_name().to_str().ok().and_then(|name| name.parse().ok());
            // One that another sidecar sweeps meanwhile is no fault of ours.
            if let Some(number) = number.filter(|number| *number < RANGES)
                && let Ok(Some(lock)) = self.try_lock(number)
            {
                drop(self.hold(number, lock));
            }
        }
        Ok(())
    }

    fn hold(&self, number: u32, lock: OwnedFd) -> UidRange {
        UidRange { number, folder: Arc::clone(&self.folder), _lock: lock }
    }

    /// Takes a free range.
    pub(crate) fn take(&self) -> Result<UidRange, Fault> {
        for _ in 0..RANGES {
            let number = self.next.fetch_add(1, Ordering::Relaxed) % RANGES;
            if let Some(lock) = self.try_lock(number).at_path(Step::UidRange, format!("{FOLDER}/{number}"))? {
                return Ok(self.hold(number, lock));
            }
        }
        Err(Fault::about(Step::UidRange, Errno::USERS, FOLDER))
    }

    fn try_lock(&self, number: u32) -> rustix::io::Result<Option<OwnedFd>> {
        let name = number.to_string();
        loop {
            let flags = OFlags::RDONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let file = openat(&*self.folder, &name, flags, Mode::RUSR | Mode::WUSR)?;
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(Errno::WOULDBLOCK) => return Ok(None),
                Err(errno) => return Err(errno),
            }
            // Given back between our open and our lock: that file is nobody's any more.
            let (ours, named) = (fstat(&file)?, statat(&*self.folder, &name, AtFlags::SYMLINK_NOFOLLOW));
            if named.is_ok_and(|named| named.st_ino == ours.st_ino) {
                return Ok(Some(file));
            }
        }
    }
}
