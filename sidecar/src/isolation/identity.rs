//! Users: who guest processes are, and how ids inside relate to ids outside (`user_namespaces(7)`).

use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{Mode, OFlags, openat};
use rustix::process::{Gid, Pid, Uid, geteuid};
use serde::{Deserialize, Serialize};

use super::{At as _, Fault, Step};

/// Ids in one VM's range.
pub(crate) const RANGE: u32 = 65_536;

/// Who guest processes run as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Guest {
    /// uid 0 of the VM rather than `agentos`.
    pub root: bool,
}

impl Guest {
    /// uid and gid of `agentos`.
    pub(crate) const AGENTOS: u32 = 1000;

    /// uid and gid inside.
    pub(crate) fn id(self) -> u32 {
        if self.root { 0 } else { Self::AGENTOS }
    }

    /// User name inside.
    pub(crate) fn name(self) -> &'static str {
        if self.root { "root" } else { "agentos" }
    }

    /// Home directory inside.
    pub(crate) fn home(self) -> &'static str {
        if self.root { "/root" } else { "/home/agentos" }
    }
}

/// How ids inside relate to ids outside; users and groups alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum IdMaps {
    /// 65 536 ids of the VM's own, from this one on; init is uid 0 inside. The sidecar is root.
    Range(u32),
    /// One id: the zygote's, shown inside as the guest's. The sidecar is an ordinary user.
    Single,
    /// None: the VM has no user namespace. Guest processes have this id of the host, or else the sidecar's own.
    Host(Option<u32>),
}

impl IdMaps {
    /// The uid and gid of init inside.
    pub(crate) fn init_id(self, guest: Guest) -> u32 {
        match self {
            Self::Range(_) => 0,
            Self::Single | Self::Host(_) => self.guest_id(guest),
        }
    }

    /// The uid and gid of guest processes, as they see it.
    pub(crate) fn guest_id(self, guest: Guest) -> u32 {
        match self {
            Self::Range(_) | Self::Single => guest.id(),
            Self::Host(id) => id.unwrap_or_else(|| geteuid().as_raw()),
        }
    }

    /// Whether guest processes have init's own uid.
    pub(crate) fn are_shared(self, guest: Guest) -> bool {
        match self {
            Self::Range(_) => guest.root,
            Self::Single => true,
            Self::Host(id) => id.is_none(),
        }
    }

    /// The guest's uid and gid as the sidecar sees them, where they differ from its own.
    pub(crate) fn guest_id_outside(self, guest: Guest) -> Option<u32> {
        match self {
            Self::Range(base) => Some(base + guest.id()),
            Self::Single => None,
            Self::Host(id) => id,
        }
    }

    fn line(self, guest: Guest) -> Option<String> {
        match self {
            Self::Range(base) => Some(format!("0 {base} {RANGE}\n")),
            Self::Single => Some(format!("{} 0 1\n", guest.id())),
            Self::Host(_) => None,
        }
    }

    /// Writes both maps of a new process's user namespace; `process` is its folder in `/proc`.
    pub(crate) fn write(self, process: BorrowedFd<'_>, guest: Guest) -> Result<(), Fault> {
        let Some(line) = self.line(guest) else { return Ok(()) };
        write_setting(process, "uid_map", line.as_bytes())?;
        write_setting(process, "gid_map", line.as_bytes())
    }
}

/// Whether this process is root and may hand out these ids, users and groups alike: in a container it may have but a few.
pub(crate) fn is_root_over(ids: std::ops::Range<u32>) -> bool {
    let holds = |map: &str| {
        std::fs::read_to_string(map).unwrap_or_default().lines().any(|line| {
            let mut numbers = line.split_whitespace().filter_map(|number| number.parse::<u32>().ok());
            let (Some(first), Some(_), Some(count)) = (numbers.next(), numbers.next(), numbers.next()) else {
                return false;
            };
            first <= ids.start && ids.end <= first.saturating_add(count)
        })
    };
    geteuid().is_root() && holds("/proc/self/uid_map") && holds("/proc/self/gid_map")
}

/// Maps uid and gid 0 of the user namespace this process has just made to the ids it had before. Without privileges
/// outside, the kernel allows exactly that, once `setgroups` is given up.
pub(crate) fn map_zygote_to_root(uid: Uid, gid: Gid) -> Result<(), Fault> {
    let folder = open_process_folder(rustix::fs::CWD, "/proc/self")?;
    write_setting(folder.as_fd(), "setgroups", b"deny")?;
    write_setting(folder.as_fd(), "uid_map", format!("0 {} 1\n", uid.as_raw()).as_bytes())?;
    write_setting(folder.as_fd(), "gid_map", format!("0 {} 1\n", gid.as_raw()).as_bytes())
}

/// Opens `/proc/PID` below an open `/proc`. What is read and written through it belongs to that very process, even if
/// its pid is given to another one later.
pub(crate) fn process_folder(proc: BorrowedFd<'_>, pid: Pid) -> Result<std::os::fd::OwnedFd, Fault> {
    open_process_folder(proc, &pid.as_raw_nonzero().to_string())
}

fn open_process_folder(start: BorrowedFd<'_>, path: &str) -> Result<std::os::fd::OwnedFd, Fault> {
    openat(start, path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .at_path(Step::IdMaps, path)
}

fn write_setting(process: BorrowedFd<'_>, name: &str, value: &[u8]) -> Result<(), Fault> {
    let file =
        openat(process, name, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty()).at_path(Step::IdMaps, name)?;
    rustix::io::write(&file, value).at_path(Step::IdMaps, name)?;
    Ok(())
}

/// Becomes the VM's own user: in a user namespace, outside ids do not exist for this process afterwards. `setgroups` works
/// only where a range is mapped; with a single id the kernel forbids it, and the zygote's groups stay.
pub(crate) fn become_id(id: u32, id_maps: IdMaps) -> rustix::io::Result<()> {
    if matches!(id_maps, IdMaps::Range(_) | IdMaps::Host(Some(_))) {
        rustix::thread::set_thread_groups(&[])?;
        let (uid, gid) = (Uid::from_raw(id), Gid::from_raw(id));
        rustix::thread::set_thread_res_gid(gid, gid, gid)?;
        rustix::thread::set_thread_res_uid(uid, uid, uid)?;
    }
    Ok(())
}
