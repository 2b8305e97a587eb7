//! The generated `/etc`: an allow list of the host's world-readable files and folders, and a few files of our own.
//!
//! What comes from the host is shared by all VMs, read-only, as `/etc/static`; each name of it in `/etc` is a link into
//! that one mount. What is ours are files of the VM, so that its root may edit them. Private keys are never taken.

mod copy;
mod own;

use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags};

use super::mounts::{attach, copy_tree};
use super::path::{make_file, make_folder, make_link, open, open_place};
use super::plan::Plan;
use super::{At as _, Fault, Step};

pub(crate) use copy::copy;

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

/// Files that a VM with an `/etc` of its own has from us.
const GENERATED: [&str; 6] = ["group", "hostname", "hosts", "nsswitch.conf", "passwd", "resolv.conf"];

/// What of the host's own `/etc` may be read where a VM has none: the same, and what stands for the generated files.
pub(crate) fn allowed_of_host() -> Vec<String> {
    let entries = std::fs::read_dir("/etc").into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let allowed =
        names.filter(|name| [&FILES[..], &FOLDERS, &GENERATED].iter().any(|list| copy::is_on(list, name)));
    allowed.map(|name| format!("/etc/{name}")).collect()
}

/// Where the shared part is.
const STATIC: &str = "etc/static";

/// What `/etc` of every VM of a sidecar is made of.
#[derive(Debug)]
pub(crate) struct Template {
    /// Links: name, target.
    links: Vec<(String, String)>,
}

/// Fills `/etc` below `root`.
pub(crate) fn generate(
    plan: &Plan,
    template: &Template,
    base: &OwnedFd,
    root: &OwnedFd,
) -> Result<(), Fault> {
    make_folder(Step::Etc, root, STATIC, 0o755, None)?;
    let shared = copy_tree(base, "etc").at_path(Step::Etc, STATIC)?;
    let place = open_place(root, STATIC).at_path(Step::Etc, STATIC)?;
    attach(&shared, &place).at_path(Step::Etc, STATIC)?;

    let etc = open(root, "etc", OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).at_path(Step::Etc, "etc")?;
    for (name, target) in &template.links {
        make_link(Step::Etc, &etc, name, target)?;
    }
    for (name, content) in own::OF_ALL {
        make_file(Step::Etc, &etc, name, 0o644, content.as_bytes())?;
    }
    for (name, content) in own::of_vm(plan) {
        make_file(Step::Etc, &etc, name, 0o644, content.as_bytes())?;
    }
    Ok(())
}
