//! Copies the allow list from the host's `/etc`, once, in the zygote. Hundreds of certificates and alternatives are on
//! it, so each costs no more calls than it must: a folder is opened once, a link is known as one from the listing.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, openat, readlinkat, statat};
use rustix::io::Errno;

use super::{FILES, FOLDERS, Template};
use crate::isolation::path::{make_file, make_folder, make_link, open_place};
use crate::isolation::{At as _, Fault, Step};

/// A file larger than this is left out: nothing on the list is.
const LARGEST_BYTES: u64 = 8 << 20;

/// An entry of a folder.
struct Entry {
    name: String,
    kind: FileType,
}

/// Copies what the allow list names into `etc` of the base, and says which links a VM's `/etc` needs. What is absent,
/// not world-readable or a private key is left out.
pub(crate) fn copy(host: &OwnedFd, base: &OwnedFd) -> Result<Template, Fault> {
    let mut links = vec![("mtab".to_owned(), "../proc/self/mounts".to_owned())];
    let Ok(from) = openat(host, "etc", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
    else {
        return Ok(Template { links });
    };
    let to = open_place(base, "etc").at_path(Step::Base, "etc")?;
    for entry in entries_of(&from).at_path(Step::Base, "/etc")? {
        let (file, folder) = (is_on(&FILES, &entry.name), is_on(&FOLDERS, &entry.name));
        if !file && !folder {
            continue;
        }
        if entry.kind == FileType::Symlink {
            let target = target_of(from.as_fd(), &entry.name).at_path(Step::Base, &entry.name)?;
            links.push((entry.name, target));
        } else if (folder || entry.kind != FileType::Directory)
            && copy_entry(from.as_fd(), to.as_fd(), &entry)?
        {
            let target = format!("static/{}", entry.name);
            links.push((entry.name, target));
        }
    }
    Ok(Template { links })
}

pub(super) fn is_on(list: &[&str], name: &str) -> bool {
    list.iter().any(|pattern| match pattern.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => *pattern == name,
    })
}

/// Copies one entry, a folder with all it holds. False if it is left out.
fn copy_entry(from: BorrowedFd<'_>, to: BorrowedFd<'_>, entry: &Entry) -> Result<bool, Fault> {
    let name = &entry.name;
    if entry.kind == FileType::Symlink {
        let target = target_of(from, name).at_path(Step::Base, name)?;
        return make_link(Step::Base, to, name, &target).map(|()| true);
    }
    let stat = statat(from, name, AtFlags::SYMLINK_NOFOLLOW).at_path(Step::Base, name)?;
    if !Mode::from_raw_mode(stat.st_mode).contains(Mode::ROTH) {
        return Ok(false);
    }
    match entry.kind {
        FileType::Directory if name != "private" => copy_folder(from, to, name),
        FileType::RegularFile
            if !has_suffix(name, "key")
                && u64::try_from(stat.st_size).is_ok_and(|size| size <= LARGEST_BYTES) =>
        {
            copy_file(from, to, name)
        }
        _ => Ok(false),
    }
}

fn copy_folder(from: BorrowedFd<'_>, to: BorrowedFd<'_>, name: &str) -> Result<bool, Fault> {
    let Some(from) = open(from, name, OFlags::DIRECTORY).at_path(Step::Base, name)? else { return Ok(false) };
    make_folder(Step::Base, to, name, 0o755, None)?;
    let to = open_place(to, name).at_path(Step::Base, name)?;
    for entry in entries_of(&from).at_path(Step::Base, name)? {
        copy_entry(from.as_fd(), to.as_fd(), &entry)?;
    }
    Ok(true)
}

fn copy_file(from: BorrowedFd<'_>, to: BorrowedFd<'_>, name: &str) -> Result<bool, Fault> {
    let Some(file) = open(from, name, OFlags::NONBLOCK).at_path(Step::Base, name)? else { return Ok(false) };
    let content = read_all(file).at_path(Step::Base, name)?;
    if holds_private_key(&content) {
        return Ok(false);
    }
    make_file(Step::Base, to, name, 0o644, &content).map(|()| true)
}

/// What vanished or may not be read is left out.
fn open(folder: BorrowedFd<'_>, name: &str, flags: OFlags) -> rustix::io::Result<Option<OwnedFd>> {
    let flags = flags | OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match openat(folder, name, flags, Mode::empty()) {
        Ok(open) => Ok(Some(open)),
        Err(Errno::NOENT | Errno::ACCESS | Errno::PERM | Errno::LOOP) => Ok(None),
        Err(errno) => Err(errno),
    }
}

fn target_of(folder: BorrowedFd<'_>, name: &str) -> rustix::io::Result<String> {
    Ok(readlinkat(folder, name, Vec::new())?.to_string_lossy().into_owned())
}

fn entries_of(folder: &OwnedFd) -> rustix::io::Result<Vec<Entry>> {
    let mut entries = Vec::new();
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        // A name that is no UTF-8 is on no list of ours.
        let Ok(name) = entry.file_name().to_str() else { continue };
        if name == "." || name == ".." {
            continue;
        }
        let kind = match entry.file_type() {
            // Some file systems do not say it in a listing.
            FileType::Unknown => {
                FileType::from_raw_mode(statat(folder, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW)?.st_mode)
            }
            kind => kind,
        };
        entries.push(Entry { name: name.to_owned(), kind });
    }
    entries.sort_unstable_by(|one, other| one.name.cmp(&other.name));
    Ok(entries)
}

fn read_all(file: OwnedFd) -> rustix::io::Result<Vec<u8>> {
    use std::io::Read as _;
    let mut content = Vec::new();
    std::fs::File::from(file)
        .take(LARGEST_BYTES)
        .read_to_end(&mut content)
        .map_err(|error| crate::isolation::fault::errno_of(&error))?;
    Ok(content)
}

fn has_suffix(name: &str, suffix: &str) -> bool {
    name.rsplit_once('.').is_some_and(|(_, ending)| ending.eq_ignore_ascii_case(suffix))
}

fn holds_private_key(content: &[u8]) -> bool {
    const MARK: &[u8] = b"PRIVATE KEY-----";
    // The first byte is compared first: it is rare in what certificates are made of.
    let mut starts = content.iter().enumerate().filter(|(_, byte)| **byte == MARK[0]);
    starts.any(|(at, _)| content[at..].starts_with(MARK))
}
