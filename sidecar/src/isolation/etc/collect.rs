//! Reads the allow list from the host's `/etc`, once, in the zygote.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, openat, readlinkat, statat};
use rustix::io::Errno;

use super::{FILES, FOLDERS, Template};
use crate::isolation::path::{make_file, make_folder, make_link};
use crate::isolation::{At as _, Fault, Step};

/// A file larger than this is left out: nothing on the list is.
const LARGEST_BYTES: u64 = 8 << 20;

/// What the host's `/etc` offers.
#[derive(Debug, Default)]
pub(crate) struct Collected {
    files: Vec<(String, Node)>,
}

/// A file or folder as read from the host.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Node {
    Link(String),
    File(Vec<u8>),
    Folder(Vec<(String, Node)>),
}

/// Reads what the allow list names; what is absent, not world-readable or a private key is left out.
pub(crate) fn collect(host: &OwnedFd) -> Result<Collected, Fault> {
    let Ok(etc) = openat(host, "etc", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
    else {
        return Ok(Collected::default());
    };
    let names = names_in(&etc).at_path(Step::Base, "/etc")?;
    let allowed = |name: &str, list: &[&str]| {
        list.iter().any(|pattern| match pattern.strip_suffix('*') {
            Some(start) => name.starts_with(start),
            None => *pattern == name,
        })
    };
    let mut collected = Collected::default();
    for name in names {
        let node = if allowed(&name, &FILES) || allowed(&name, &FOLDERS) {
            read_node(etc.as_fd(), &name).at_path(Step::Base, format!("/etc/{name}"))?
        } else {
            None
        };
        let fits = match node {
            Some(Node::Folder(_)) => allowed(&name, &FOLDERS),
            _ => true,
        };
        if let Some(node) = node.filter(|_| fits) {
            collected.files.push((name, node));
        }
    }
    Ok(collected)
}

impl Collected {
    /// Writes files and folders into `etc` of the base, and says which links a VM's `/etc` needs.
    pub(crate) fn lay_out(self, base: &OwnedFd) -> Result<Template, Fault> {
        let mut links = vec![("mtab".to_owned(), "../proc/self/mounts".to_owned())];
        for (name, node) in self.files {
            let target = match node {
                Node::Link(target) => target,
                node => {
                    write_node(base, &format!("etc/{name}"), &node)?;
                    format!("static/{name}")
                }
            };
            links.push((name, target));
        }
        Ok(Template { links })
    }
}

fn write_node(base: &OwnedFd, path: &str, node: &Node) -> Result<(), Fault> {
    match node {
        Node::Link(target) => make_link(Step::Base, base, path, target),
        Node::File(content) => make_file(Step::Base, base, path, 0o644, content),
        Node::Folder(children) => {
            make_folder(Step::Base, base, path, 0o755, None)?;
            children.iter().try_for_each(|(name, node)| write_node(base, &format!("{path}/{name}"), node))
        }
    }
}

fn read_node(folder: BorrowedFd<'_>, name: &str) -> rustix::io::Result<Option<Node>> {
    let stat = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
    let world_readable = Mode::from_raw_mode(stat.st_mode).contains(Mode::ROTH);
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Symlink => {
            Ok(Some(Node::Link(readlinkat(folder, name, Vec::new())?.to_string_lossy().into_owned())))
        }
        FileType::Directory if world_readable && name != "private" => {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let Some(open) = readable(openat(folder, name, flags, Mode::empty()))? else { return Ok(None) };
            let mut children = Vec::new();
            for child in names_in(&open)? {
                if let Some(node) = read_node(open.as_fd(), &child)? {
                    children.push((child, node));
                }
            }
            Ok(Some(Node::Folder(children)))
        }
        FileType::RegularFile if world_readable && !has_suffix(name, "key") => {
            if u64::try_from(stat.st_size).unwrap_or(u64::MAX) > LARGEST_BYTES {
                return Ok(None);
            }
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            let Some(open) = readable(openat(folder, name, flags, Mode::empty()))? else { return Ok(None) };
            let content = read_all(open)?;
            Ok((!holds_private_key(&content)).then_some(Node::File(content)))
        }
        _ => Ok(None),
    }
}

/// What vanished or may not be read is left out.
fn readable(opened: rustix::io::Result<OwnedFd>) -> rustix::io::Result<Option<OwnedFd>> {
    match opened {
        Ok(open) => Ok(Some(open)),
        Err(Errno::NOENT | Errno::ACCESS | Errno::PERM | Errno::LOOP) => Ok(None),
        Err(errno) => Err(errno),
    }
}

fn names_in(folder: &OwnedFd) -> rustix::io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(folder)? {
        // A name that is no UTF-8 is on no list of ours.
        if let Ok(name) = entry?.file_name().to_str()
            && name != "."
            && name != ".."
        {
            names.push(name.to_owned());
        }
    }
    names.sort_unstable();
    Ok(names)
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
    content.windows(MARK.len()).any(|window| window == MARK)
}
