//! The generated `/etc`: an allow list of the host's world-readable files and folders, and a few files of our own.
//!
//! Small files are copied into each VM's tmpfs, so that root of the VM may edit them; folders and large files are
//! shared read-only through the base. Private keys are never taken.

mod collect;
mod own;

use std::os::fd::OwnedFd;

use super::mounts::{attach, copy_tree};
use super::path::{make_file, make_folder, make_link, open_place};
use super::plan::Plan;
use super::{At as _, Fault, Step};

pub(crate) use collect::collect;

/// Files a VM gets if the host has them.
const FILES: [&str; 19] = [
    "bash.bashrc",
    "debian_version",
    "gai.conf",
    "host.conf",
    "inputrc",
    "ld.so.cache",
    "ld.so.conf",
    "locale.alias",
    "localtime",
    "login.defs",
    "magic",
    "mime.types",
    "networks",
    "os-release",
    "profile",
    "protocols",
    "rpc",
    "services",
    "timezone",
];

/// Folders a VM gets if the host has them. A trailing `*` stands for any ending.
const FOLDERS: [&str; 11] = [
    "alternatives",
    "ca-certificates",
    "crypto-policies",
    "fonts",
    "java*",
    "ld.so.conf.d",
    "perl",
    "pki",
    "python3*",
    "ssl",
    "terminfo",
];

/// A file above this is shared rather than copied.
const COPY_LIMIT_BYTES: usize = 16 << 10;

/// The part of `/etc` that is the same in every VM of a sidecar.
#[derive(Debug)]
pub(crate) struct Template {
    entries: Vec<(String, Entry)>,
}

/// One name in `/etc`.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Entry {
    /// A link with this target.
    Link(String),
    /// A file copied into the VM.
    File(Vec<u8>),
    /// A file shared through the base.
    SharedFile,
    /// A folder shared through the base.
    SharedFolder,
}

/// Fills `/etc` below `root`.
pub(crate) fn generate(
    plan: &Plan,
    template: &Template,
    base: &OwnedFd,
    root: &OwnedFd,
) -> Result<(), Fault> {
    for (name, entry) in &template.entries {
        let path = format!("etc/{name}");
        match entry {
            Entry::Link(target) => make_link(Step::Etc, root, &path, target)?,
            Entry::File(content) => make_file(Step::Etc, root, &path, 0o644, content)?,
            Entry::SharedFile => {
                make_file(Step::Etc, root, &path, 0o644, b"")?;
                share(base, root, &path)?;
            }
            Entry::SharedFolder => {
                make_folder(Step::Etc, root, &path, 0o755, None)?;
                share(base, root, &path)?;
            }
        }
    }
    for (name, content) in own::of_vm(plan) {
        make_file(Step::Etc, root, &format!("etc/{name}"), 0o644, content.as_bytes())?;
    }
    Ok(())
}

fn share(base: &OwnedFd, root: &OwnedFd, path: &str) -> Result<(), Fault> {
    let copy = copy_tree(base, path).at_path(Step::Etc, path)?;
    let place = open_place(root, path).at_path(Step::Etc, path)?;
    attach(&copy, &place).at_path(Step::Etc, path)
}
