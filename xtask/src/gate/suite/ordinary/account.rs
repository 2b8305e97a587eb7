//! A uid that nobody has: taking it, and making sure that nothing runs under it in the end.

use std::collections::BTreeSet;
use std::env;
use std::fs::{self, File, TryLockError};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::child;

const CANDIDATES: std::ops::Range<u32> = 12_345..13_345;
/// A sidecar ends within a second of its client.
const PATIENCE: Duration = Duration::from_secs(5);

/// The first uid without a name, a process or another gate, with its empty, locked folder.
pub(super) fn claim() -> Result<(u32, PathBuf, File)> {
    let named = named_ids()?;
    for uid in CANDIDATES.filter(|uid| !named.contains(uid)) {
        let folder = env::temp_dir().join(format!("agentvm-gate-{uid}"));
        let claimed = lock(&folder).with_context(|| format!("{} cannot be taken", folder.display()))?;
        if let Some(lock) = claimed
            && processes_of(uid)?.is_empty()
        {
            empty(&folder).with_context(|| format!("{} cannot be emptied", folder.display()))?;
            return Ok((uid, folder, lock));
        }
    }
    bail!("no uid of {CANDIDATES:?} is free")
}

/// The numbers that stand for a user or a group of this machine.
fn named_ids() -> Result<BTreeSet<u32>> {
    let users = fs::read_to_string("/etc/passwd").context("/etc/passwd cannot be read")?;
    let groups = fs::read_to_string("/etc/group").context("/etc/group cannot be read")?;
    let number = |line: &str| line.split(':').nth(2)?.parse().ok();
    Ok(users.lines().chain(groups.lines()).filter_map(number).collect())
}

/// The lock on a folder that is root's own; none if another gate holds it or the folder is not to be trusted.
fn lock(folder: &Path) -> Result<Option<File>> {
    match fs::create_dir(folder) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error.into()),
        _ => {}
    }
    let metadata = fs::symlink_metadata(folder)?;
    if !metadata.is_dir() || metadata.uid() != 0 {
        return Ok(None);
    }
    let file = File::open(folder)?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error.into()),
    }
}

/// Removes what a run that was killed has left in the folder.
fn empty(folder: &Path) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            fs::remove_dir_all(entry.path())?;
        } else {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// Waits for the uid's processes to end; those that don't are killed and named in a complaint.
pub(super) fn end_stragglers(uid: u32) -> Result<Option<String>> {
    let start = Instant::now();
    let mut left = processes_of(uid)?;
    while !left.is_empty() && start.elapsed() < PATIENCE {
        thread::sleep(Duration::from_millis(20));
        left = processes_of(uid)?;
    }
    if left.is_empty() {
        return Ok(None);
    }
    let pids: Vec<_> = left.iter().map(|(pid, _)| pid.as_str()).collect();
    child::run(
        Command::new("/bin/sh").arg("-c").arg("kill -s KILL -- \"$@\"").arg("sh").args(&pids),
        PATIENCE,
    )?;
    let names: Vec<_> = left.iter().map(|(pid, name)| format!("{name} ({pid})")).collect();
    Ok(Some(format!("left running after the tests as uid {uid}, now killed: {}", names.join(", "))))
}

/// Pid and name of every process with this real uid, zombies left out: whoever must reap them is one as well, or init.
fn processes_of(uid: u32) -> Result<Vec<(String, String)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").context("/proc cannot be read")? {
        let entry = entry?;
        // A process may end while we look; what is no process has no such file.
        let Ok(status) = fs::read_to_string(entry.path().join("status")) else { continue };
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or("").trim();
        let is_zombie = field("State:").starts_with('Z');
        if field("Uid:").split_whitespace().next() == Some(&uid.to_string()) && !is_zombie {
            found.push((entry.file_name().to_string_lossy().into_owned(), field("Name:").to_owned()));
        }
    }
    Ok(found)
}
