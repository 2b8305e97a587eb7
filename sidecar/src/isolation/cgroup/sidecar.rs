//! The groups of one sidecar: found when it starts, removed when it ends, and swept by the next one should it have been
//! killed.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::folder::{self, Locked};
use super::place::{Place, places};
use super::version::Version;
use super::{Controller, Group, GroupLimits};
use crate::isolation::{Fault, Step};

/// What the folders of all sidecars begin with.
const PREFIX: &str = "agentvm-";

/// All VMs together weigh as much as this many sessions of the host, and each VM as one: a VM that computes slows down
/// the host's own work no more than that, nor another VM more than the host's own work does.
const WEIGHT_IN_SESSIONS: u64 = 4;

/// How long the last processes may take to leave when the sidecar ends.
const LAST_WAIT: Duration = Duration::from_secs(1);

/// What this sidecar has of control groups.
#[derive(Debug)]
pub(crate) struct Cgroups {
    pub(super) trees: Vec<Tree>,
    missing: BTreeMap<Controller, String>,
    /// Groups that could not be removed yet.
    leftovers: Mutex<Vec<PathBuf>>,
}

/// The sidecar's own group in one hierarchy.
#[derive(Debug)]
pub(super) struct Tree {
    pub version: Version,
    /// Those that are used here.
    pub controllers: Vec<Controller>,
    pub folder: Locked,
}

impl Tree {
    pub(super) fn has(&self, controller: Controller) -> bool {
        self.controllers.contains(&controller)
    }

    /// Whether it is the memory hierarchy of version 1, into which guest processes go alone.
    pub(super) fn is_memory_alone(&self) -> bool {
        self.version == Version::V1 && self.controllers == [Controller::Memory]
    }
}

impl Cgroups {
    /// Looks for what can be had, and sweeps what sidecars that were killed have left there. Never fails: see
    /// [`Self::missing`].
    pub(crate) fn open() -> Arc<Self> {
        let name = format!("{PREFIX}{}", uuid::Uuid::new_v4().simple());
        let (mut trees, mut missing, mut leftovers) = (Vec::<Tree>::new(), BTreeMap::new(), Vec::new());
        let places = places(
            &folder::read(Path::new("/proc/self/cgroup")),
            &folder::read(Path::new("/proc/self/mountinfo")),
        );
        for place in places {
            let wanted: Vec<Controller> = Controller::ALL
                .into_iter()
                .filter(|controller| !trees.iter().any(|tree| tree.has(*controller)))
                .filter(|controller| {
                    place.version == Version::V2
                        || place.controllers.iter().any(|name| name == controller.name())
                })
                .collect();
            if wanted.is_empty() {
                continue;
            }
            match open_tree(&place, &wanted, &name, &mut leftovers) {
                Ok(tree) => trees.push(tree),
                Err(why) => missing.extend(wanted.into_iter().map(|controller| (controller, why.clone()))),
            }
        }
        for controller in Controller::ALL {
            if trees.iter().any(|tree| tree.has(controller)) {
                missing.remove(&controller);
            } else {
                missing
                    .entry(controller)
                    .or_insert_with(|| "no control groups are mounted that have it".to_owned());
            }
        }
        Arc::new(Self { trees, missing, leftovers: Mutex::new(leftovers) })
    }

    /// Why a controller cannot be used; `None` if it can.
    pub(crate) fn missing(&self, controller: Controller) -> Option<&str> {
        self.missing.get(&controller).map(String::as_str)
    }

    /// Makes the groups of a VM, as far as there are controllers; EOPNOTSUPP where a limit needs one that is missing.
    pub(crate) fn make(self: &Arc<Self>, name: &str, limits: &GroupLimits) -> Result<Group, Fault> {
        for (controller, limit, field) in [
            (Controller::Memory, limits.memory_bytes, "limits.memory_bytes"),
            (Controller::Cpu, limits.cpu_millicores, "limits.cpu_millicores"),
        ] {
            if limit.is_some() && self.missing(controller).is_some() {
                return Err(Fault::about(Step::Limits, Errno::OPNOTSUPP, field));
            }
        }
        self.remove_leftovers();
        Group::make(self, name, limits)
    }

    /// Removes a group now, or once the kernel has let go of its last process.
    pub(super) fn remove(&self, group: PathBuf) {
        if !folder::remove(&group) {
            self.leftovers.lock().unwrap_or_else(PoisonError::into_inner).push(group);
        }
    }

    fn remove_leftovers(&self) {
        self.leftovers.lock().unwrap_or_else(PoisonError::into_inner).retain(|group| !folder::remove(group));
    }
}

impl Drop for Cgroups {
    fn drop(&mut self) {
        self.remove_leftovers();
        let deadline = Instant::now() + LAST_WAIT;
        for tree in &self.trees {
            // What is left is swept by the next sidecar.
            while !folder::remove(&tree.folder.path) && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
}

/// Finds a group in which those of VMs can be made, beginning with the one this process is in. What others have left in
/// there and cannot be removed yet goes to `leftovers`.
fn open_tree(
    place: &Place,
    wanted: &[Controller],
    name: &str,
    leftovers: &mut Vec<PathBuf>,
) -> Result<Tree, String> {
    let above = match place.version {
        Version::V1 => 1,
        Version::V2 => usize::MAX,
    };
    let mut first = None;
    for parent in place.group.ancestors().take_while(|group| group.starts_with(&place.mount)).take(above) {
        sweep(parent, leftovers);
        match make_tree(place.version, parent, wanted, name) {
            Ok(tree) => return Ok(tree),
            Err(why) => first = first.or(Some(why)),
        }
    }
    Err(first.unwrap_or_else(|| format!("{} is not to be seen", place.group.display())))
}

fn make_tree(version: Version, parent: &Path, wanted: &[Controller], name: &str) -> Result<Tree, String> {
    let path = parent.join(name);
    let folder = Locked::make(&path).map_err(|errno| refused("make", &path, errno))?;
    let controllers = match version {
        Version::V1 => Ok(wanted.to_vec()),
        Version::V2 => enable(parent, &path, wanted),
    };
    let tree = controllers.map(|controllers| Tree { version, controllers, folder });
    let tree = tree.and_then(|tree| weigh(&tree).and_then(|()| probe(&tree)).map(|()| tree));
    tree.inspect_err(|_| _ = folder::remove(&path))
}

/// Hands controllers down to the groups of VMs; those that can be.
fn enable(parent: &Path, path: &Path, wanted: &[Controller]) -> Result<Vec<Controller>, String> {
    leave_if_alone(parent, path)?;
    let available = folder::read(&parent.join("cgroup.controllers"));
    let mut why = format!("{} has no controller", parent.display());
    let mut enabled = Vec::new();
    for controller in wanted.iter().filter(|c| available.split_whitespace().any(|name| name == c.name())) {
        let switch = format!("+{}", controller.name());
        let on = [parent, path].into_iter().try_for_each(|group| {
            let file = group.join("cgroup.subtree_control");
            folder::write(&file, &switch).map_err(|errno| refused(&switch, &file, errno))
        });
        match on {
            Ok(()) => enabled.push(*controller),
            Err(reason) => why = reason,
        }
    }
    if enabled.is_empty() { Err(why) } else { Ok(enabled) }
}

/// Version 2 hands controllers down only from a group without processes: if this process is the only one in `parent`,
/// as in a service of its own, it moves into a group below.
fn leave_if_alone(parent: &Path, path: &Path) -> Result<(), String> {
    let own = std::process::id().to_string();
    if folder::read(&parent.join("cgroup.procs")).trim() != own {
        return Ok(());
    }
    let sidecar = path.join("sidecar");
    folder::make(&sidecar).map_err(|errno| refused("make", &sidecar, errno))?;
    let entrance = sidecar.join(Version::V2.entrance());
    folder::write(&entrance, &own).map_err(|errno| refused("enter", &entrance, errno))
}

/// Gives all VMs together their share of the processor.
fn weigh(tree: &Tree) -> Result<(), String> {
    if !tree.has(Controller::Cpu) {
        return Ok(());
    }
    let (file, session) = tree.version.share();
    let file = tree.folder.path.join(file);
    folder::write(&file, &(session * WEIGHT_IN_SESSIONS).to_string())
        .map_err(|errno| refused("set", &file, errno))
}

/// Whether a group made here really takes limits.
fn probe(tree: &Tree) -> Result<(), String> {
    let probe = tree.folder.path.join("probe");
    folder::make(&probe).map_err(|errno| refused("make", &probe, errno))?;
    let settings = tree.controllers.iter().flat_map(|controller| match controller {
        Controller::Cpu => tree.version.cpu(1000),
        Controller::Memory => tree.version.memory(1 << 30),
        Controller::Pids => tree.version.pids(16),
    });
    let set = folder::set(&probe, &settings.collect::<Vec<_>>());
    folder::remove(&probe);
    set.map_err(|(errno, file)| refused("set", &file, errno))
}

/// Removes what sidecars that were killed have left in `parent`, or keeps it in mind: their last processes may still be
/// ending. Of those that live the folders are locked.
fn sweep(parent: &Path, leftovers: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(PREFIX)
            && let Ok(dead) = Locked::take(&entry.path())
            && !folder::remove(&dead.path)
        {
            leftovers.push(dead.path);
        }
    }
}

fn refused(what: &str, path: &Path, errno: Errno) -> String {
    format!("{what} {}: {}", path.display(), crate::errno::text(errno.raw_os_error()))
}
