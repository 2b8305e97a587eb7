//! Paths below the VM's root: opened so that no link can lead out of it (`openat2(2)`), made and written through the
//! descriptor that was opened.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{
    AtFlags, Gid, Mode, OFlags, ResolveFlags, Uid, chmodat, chownat, fchown, mkdirat, openat2, symlinkat,
};
use rustix::io::Errno;

use super::{At as _, Fault, Step};

/// Opens what is at `path` below `root`, as a place: for mounting, not for reading.
pub(crate) fn open_place(root: impl AsFd, path: &str) -> rustix::io::Result<OwnedFd> {
    open(root, path, OFlags::PATH | OFlags::NOFOLLOW, Mode::empty())
}

/// Opens a file below `root` for writing, made anew.
fn create_file(root: impl AsFd, path: &str, mode: Mode) -> rustix::io::Result<OwnedFd> {
    open(root, path, OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW, mode)
}

/// Opens a path below `root`: links stay inside, magic links are refused.
pub(crate) fn open(root: impl AsFd, path: &str, flags: OFlags, mode: Mode) -> rustix::io::Result<OwnedFd> {
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    // IN_ROOT needs no retry: EAGAIN means that a `..` raced with a rename, and nobody renames here yet.
    openat2(root, path, flags | OFlags::CLOEXEC, mode, resolve)
}

/// Owner of something init makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Owner(u32);

impl Owner {
    /// The given uid and gid of the VM.
    pub(crate) fn id(id: u32) -> Self {
        Self(id)
    }

    fn ids(self) -> (Option<Uid>, Option<Gid>) {
        (Some(Uid::from_raw(self.0)), Some(Gid::from_raw(self.0)))
    }
}

/// Makes one folder below `root`; fine if it is there.
pub(crate) fn make_folder(
    step: Step,
    root: impl AsFd,
    path: &str,
    mode: u32,
    owner: Option<Owner>,
) -> Result<(), Fault> {
    let root = root.as_fd();
    match mkdirat(root, path, Mode::from_raw_mode(mode)) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(errno) => return Err(Fault::about(step, errno, path)),
    }
    if let Some(owner) = owner {
        let (uid, gid) = owner.ids();
        chownat(root, path, uid, gid, AtFlags::SYMLINK_NOFOLLOW).at_path(step, path)?;
    }
    // The umask is zero, but the sticky bit is not mkdir's to give on every system.
    if mode & 0o7000 != 0 {
        chmodat(root, path, Mode::from_raw_mode(mode), AtFlags::empty()).at_path(step, path)?;
    }
    Ok(())
}

/// Makes a folder and its missing parents below `root`, resolving each as a guest would see it; what it makes belongs
/// to `owner`.
pub(crate) fn make_folders(step: Step, root: impl AsFd, path: &str, owner: Owner) -> Result<(), Fault> {
    let root = root.as_fd();
    let mut here = String::new();
    for part in path.split('/').filter(|part| !part.is_empty()) {
        let parent = if here.is_empty() { "." } else { &here };
        let parent =
            open(root, parent, OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).at_path(step, &here)?;
        match mkdirat(&parent, part, Mode::from_raw_mode(0o755)) {
            Ok(()) => {
                let made =
                    open(&parent, part, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW, Mode::empty())
                        .at_path(step, part)?;
                let (uid, gid) = owner.ids();
                fchown(&made, uid, gid).at_path(step, part)?;
            }
            Err(Errno::EXIST) => {}
            // A read-only folder says EROFS even where the part exists, on some file systems.
            Err(Errno::ROFS | Errno::ACCESS | Errno::PERM) if open_place(&parent, part).is_ok() => {}
            Err(errno) => return Err(Fault::about(step, errno, format!("{here}/{part}"))),
        }
        here.push('/');
        here.push_str(part);
    }
    if !here.is_empty() {
        open(root, &here, OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).at_path(step, &here)?;
    }
    Ok(())
}

/// Makes a link below `root`.
pub(crate) fn make_link(step: Step, root: impl AsFd, path: &str, target: &str) -> Result<(), Fault> {
    symlinkat(target, root, path).at_path(step, path)
}

/// Makes a file below `root`.
pub(crate) fn make_file(
    step: Step,
    root: impl AsFd,
    path: &str,
    mode: u32,
    content: &[u8],
) -> Result<(), Fault> {
    // The umask is zero.
    let file = create_file(root, path, Mode::from_raw_mode(mode)).at_path(step, path)?;
    write_all(&file, content).at_path(step, path)
}

/// Writes a setting: one `write`, as the kernel's own files want it.
pub(crate) fn write_setting(step: Step, root: impl AsFd, path: &str, value: &str) -> Result<(), Fault> {
    let file = open(root, path, OFlags::WRONLY | OFlags::NOFOLLOW, Mode::empty()).at_path(step, path)?;
    rustix::io::write(&file, value.as_bytes()).at_path(step, path)?;
    Ok(())
}

fn write_all(file: &OwnedFd, mut rest: &[u8]) -> rustix::io::Result<()> {
    while !rest.is_empty() {
        let written = rustix::io::retry_on_intr(|| rustix::io::write(file, rest))?;
        rest = &rest[written..];
    }
    Ok(())
}
