//! The groups of one VM.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;

use super::entry::Entry;
use super::sidecar::{Cgroups, Tree};
use super::version::{Setting, Version, value_of};
use super::{Controller, GroupLimits, folder};
use crate::isolation::{At as _, Fault, Step};

/// Processes of our own in a VM, which the guest's limit is not to count: init, its spare, its helpers.
const OWN_PROCESSES: u64 = 2 + crate::init::MAX_HELPERS as u64;

/// Where version 2 has the processes of a VM.
const MAIN: &str = "main";

/// The groups of one VM; removed when dropped, which is to be after its last process.
#[derive(Debug)]
pub(crate) struct Group {
    cgroups: Arc<Cgroups>,
    name: String,
    /// There is one in a memory hierarchy by itself.
    memory_alone: AtomicBool,
    /// It counts the memory of the whole VM.
    counts_memory: bool,
}

/// What a VM uses now, as far as its groups count it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    /// Microseconds of processor time since the VM began.
    pub cpu_us: Option<u64>,
    /// Bytes.
    pub memory_bytes: Option<u64>,
}

impl Group {
    pub(super) fn make(cgroups: &Arc<Cgroups>, name: &str, limits: &GroupLimits) -> Result<Self, Fault> {
        // From here on, dropping it removes what was made so far.
        let memory_alone = AtomicBool::new(limits.memory_bytes.is_some());
        let counts_memory = cgroups.trees.iter().any(|tree| {
            tree.has(Controller::Memory) && (limits.memory_bytes.is_some() || !tree.is_memory_alone())
        });
        let group = Self { cgroups: Arc::clone(cgroups), name: name.to_owned(), memory_alone, counts_memory };
        for tree in group.trees() {
            group.make_in(tree)?;
            set(&group.folder(tree), &settings(tree, limits))?;
        }
        Ok(group)
    }

    /// Makes the VM's group in one hierarchy.
    fn make_in(&self, tree: &Tree) -> Result<(), Fault> {
        let path = self.folder(tree);
        make(&path)?;
        match tree.version {
            Version::V1 => Ok(()),
            Version::V2 => make(&path.join(MAIN)),
        }
    }

    fn folder(&self, tree: &Tree) -> PathBuf {
        tree.folder.path.join(&self.name)
    }

    /// Where it has groups.
    fn trees(&self) -> impl Iterator<Item = &Tree> {
        let memory_alone = self.memory_alone.load(Ordering::Relaxed);
        self.cgroups.trees.iter().filter(move |tree| memory_alone || !tree.is_memory_alone())
    }

    fn with(&self, controller: Controller) -> Option<(&Tree, PathBuf)> {
        self.trees().find(|tree| tree.has(controller)).map(|tree| (tree, self.folder(tree)))
    }

    /// What the zygote and init need to bring the VM's processes into the groups.
    pub(crate) fn entry(&self) -> Result<Entry, Fault> {
        let mut entry = Entry::default();
        for tree in self.trees() {
            let path = self.folder(tree);
            match tree.version {
                Version::V2 => entry.born = Some(open(&path.join(MAIN), OFlags::PATH | OFlags::DIRECTORY)?),
                Version::V1 => {
                    let entrance = open(&path.join(Version::V1.entrance()), OFlags::WRONLY)?;
                    if tree.is_memory_alone() {
                        entry.guest = Some(entrance);
                    } else {
                        entry.boot.push(entrance);
                    }
                }
            }
        }
        Ok(entry)
    }

    /// Makes a group for one process, and its descendants, that may use so much memory.
    pub(crate) fn exec(&self, number: u32, memory_bytes: u64) -> Result<(ExecGroup, OwnedFd), Fault> {
        let tree = self.cgroups.trees.iter().find(|tree| tree.has(Controller::Memory));
        let tree = tree.ok_or(Fault::about(Step::Limits, Errno::OPNOTSUPP, "memory_limit_bytes"))?;
        let parent = self.folder(tree);
        if tree.is_memory_alone() && !self.memory_alone.swap(true, Ordering::Relaxed) {
            self.make_in(tree)?;
        }
        if tree.version == Version::V2 {
            let switch = parent.join("cgroup.subtree_control");
            folder::write(&switch, "+memory").at_path(Step::Limits, name_of(&switch))?;
        }
        let path = parent.join(format!("exec-{number}"));
        make(&path)?;
        // From here on, dropping it removes it.
        let group = ExecGroup { cgroups: Arc::clone(&self.cgroups), version: tree.version, path };
        set(&group.path, &tree.version.memory(memory_bytes))?;
        let entrance = open(&group.path.join(tree.version.entrance()), OFlags::WRONLY)?;
        Ok((group, entrance))
    }

    /// What the VM uses now.
    pub(crate) fn usage(&self) -> Usage {
        let read = |controller| {
            let (tree, path) = self.with(controller)?;
            Some(folder::read(&path.join(tree.version.usage(controller)?)))
        };
        let memory = read(Controller::Memory).filter(|_| self.counts_memory);
        Usage {
            cpu_us: read(Controller::Cpu).and_then(|text| value_of(&text, "usage_usec")),
            memory_bytes: memory.and_then(|text| text.trim().parse().ok()),
        }
    }

    /// How many of the VM's processes the kernel has ended for want of memory.
    pub(crate) fn oom_kills(&self) -> u64 {
        let memory = self.with(Controller::Memory).filter(|_| self.counts_memory);
        memory.map_or(0, |(tree, path)| oom_kills(tree.version, &path))
    }

    /// Why a controller does not count or limit this VM; `None` if it could.
    pub(crate) fn missing(&self, controller: Controller) -> Option<&str> {
        self.cgroups.missing(controller)
    }

    /// The weight of the VM's share of the processor.
    pub(crate) fn share(&self) -> Option<u64> {
        let (tree, path) = self.with(Controller::Cpu)?;
        folder::read(&path.join(tree.version.share().0)).trim().parse().ok()
    }

    /// What a limit is, read back from the group; `None` where it has none.
    pub(crate) fn limit(&self, controller: Controller) -> Option<u64> {
        let (tree, path) = self.with(controller)?;
        let number =
            |file: &str| folder::read(&path.join(file)).split_whitespace().next()?.parse::<u64>().ok();
        match (controller, tree.version) {
            (Controller::Pids, _) => number("pids.max")?.checked_sub(OWN_PROCESSES),
            (Controller::Memory, Version::V1) => number("memory.limit_in_bytes"),
            (Controller::Memory, Version::V2) => number("memory.max"),
            (Controller::Cpu, Version::V1) => Some(number("cpu.cfs_quota_us")? / 100),
            (Controller::Cpu, Version::V2) => Some(number("cpu.max")? / 100),
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for tree in self.trees() {
            self.cgroups.remove(self.folder(tree));
        }
    }
}

/// The group of one process with a memory limit of its own.
#[derive(Debug)]
pub(crate) struct ExecGroup {
    cgroups: Arc<Cgroups>,
    version: Version,
    path: PathBuf,
}

impl ExecGroup {
    /// How many of its processes the kernel has ended for want of memory.
    pub(crate) fn oom_kills(&self) -> u64 {
        oom_kills(self.version, &self.path)
    }
}

impl Drop for ExecGroup {
    /// Descendants may still be in it: then it goes later.
    fn drop(&mut self) {
        self.cgroups.remove(std::mem::take(&mut self.path));
    }
}

/// What a VM's group of a hierarchy is set to.
fn settings(tree: &Tree, limits: &GroupLimits) -> Vec<Setting> {
    let of = |controller: &Controller| match controller {
        // Without a limit there is still a share.
        Controller::Cpu => limits.cpu_millicores.map(|limit| tree.version.cpu(limit)),
        Controller::Memory => limits.memory_bytes.map(|limit| tree.version.memory(limit)),
        Controller::Pids => Some(tree.version.pids(limits.pids.saturating_add(OWN_PROCESSES))),
    };
    tree.controllers.iter().filter_map(of).flatten().collect()
}

fn oom_kills(version: Version, group: &Path) -> u64 {
    value_of(&folder::read(&group.join(version.memory_events())), "oom_kill").unwrap_or(0)
}

fn make(path: &Path) -> Result<(), Fault> {
    folder::make(path).at_path(Step::Limits, name_of(path))
}

fn set(group: &Path, settings: &[Setting]) -> Result<(), Fault> {
    folder::set(group, settings).map_err(|(errno, file)| Fault::about(Step::Limits, errno, name_of(&file)))
}

fn open(path: &Path, flags: OFlags) -> Result<OwnedFd, Fault> {
    openat(CWD, path, flags | OFlags::CLOEXEC, Mode::empty()).at_path(Step::Limits, name_of(path))
}

fn name_of(path: &Path) -> String {
    path.display().to_string()
}
