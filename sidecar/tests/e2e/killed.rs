//! Sidecars and zygotes that are killed at any moment: nothing of them is left once the next sidecar has started. Here 40
//! creations; `cargo xtask soak` makes 500.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use agentvm_sdk::{AgentOs, AgentOsConfig, ExecOptions, Isolation, Sidecar};
use rustix::fs::{CWD, FlockOperation, Mode, OFlags, flock, openat};
use rustix::io::Errno;
use rustix::process::geteuid;
use tokio::task::JoinSet;

use crate::support::{DEADLINE, Random, apart, children, is_alive, kill, out, sidecar, tree, until, within};

/// How many creations.
const CREATIONS: &str = "AGENTVM_SOAK_CREATIONS";
/// Unless it says otherwise.
const IN_THE_GATE: usize = 40;
/// Where the random moments begin; printed, so that a run can be had again.
const SEED: &str = "AGENTVM_SOAK_SEED";
/// Creations under way when something is killed.
const AT_ONCE: usize = 5;
/// No creation of that many takes longer on a quiet machine; a kill comes at any moment before.
const LATEST: Duration = Duration::from_millis(15);

/// What is kept by a lock and has lost it: by path and inode, since another may be made with the same name.
type Unlocked = BTreeSet<(PathBuf, u64)>;

/// Files of uid ranges, state folders and groups of sidecars that nobody holds.
fn unlocked() -> Unlocked {
    let ranges = entries(Path::new("/run/agentvm/uid-ranges"));
    let folders = entries(Path::new(&format!("/var/tmp/agentvm-{}", geteuid().as_raw())));
    let ranges = ranges.into_iter().chain(folders);
    ranges.into_iter().chain(groups()).filter_map(identify).collect()
}

fn identify(path: PathBuf) -> Option<(PathBuf, u64)> {
    // What others have left is not this user's to remove.
    let inode = fs::metadata(&path).ok().filter(|meta| meta.uid() == geteuid().as_raw())?.ino();
    let file = openat(CWD, &path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Some((path, inode)),
        Err(Errno::WOULDBLOCK) => None,
        Err(errno) => panic!("{}: {errno}", path.display()),
    }
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

/// Groups of sidecars, made where this process has its own.
fn groups() -> Vec<PathBuf> {
    let own = fs::read_to_string("/proc/self/cgroup").unwrap();
    let own: BTreeSet<&str> =
        own.lines().filter_map(|line| line.split_once(":/").map(|(_, path)| path)).collect();
    let mounts = mounts();
    let hierarchies = mounts.iter().filter(|mount| mount.contains(" - cgroup"));
    let roots: BTreeSet<&Path> =
        hierarchies.filter_map(|mount| mount.split(' ').nth(4)).map(Path::new).collect();
    let groups = roots.into_iter().flat_map(|root| own.iter().map(move |group| root.join(group)));
    let entries = groups.flat_map(|group| entries(&group));
    entries
        .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("agentvm-")))
        .collect()
}

fn mounts() -> BTreeSet<String> {
    fs::read_to_string("/proc/self/mountinfo").unwrap().lines().map(str::to_owned).collect()
}

async fn create(sidecar: &Sidecar) -> Result<AgentOs, agentvm_sdk::ClientError> {
    create_as(Isolation::Sandbox, sidecar).await
}

async fn create_as(isolation: Isolation, sidecar: &Sidecar) -> Result<AgentOs, agentvm_sdk::ClientError> {
    within(AgentOs::create(AgentOsConfig::new().isolation(isolation).connection(sidecar.clone()))).await
}

/// Kills the sidecar or its zygote while VMs are being created, and looks what became of them.
async fn round(random: &mut Random, the_zygote: bool) {
    let sidecar = sidecar().await;
    let pid = sidecar.pid().unwrap();
    let zygote = children(pid).into_iter().next().expect("it has a zygote");
    let mut creations = JoinSet::new();
    for n in 0..AT_ONCE {
        let sidecar = sidecar.clone();
        let isolation = if n == AT_ONCE / 2 { Isolation::Confined } else { Isolation::Sandbox };
        creations.spawn(async move { create_as(isolation, &sidecar).await });
    }
    let moment = Duration::from_micros(random.below(LATEST.as_micros().try_into().unwrap()));
    let begun = Instant::now();
    while begun.elapsed() < moment {
        tokio::task::yield_now().await;
    }
    kill(if the_zygote { zygote } else { pid });
    let mut vms = Vec::new();
    while let Some(created) = creations.join_next().await {
        vms.extend(created.unwrap());
    }
    if the_zygote {
        for vm in &vms {
            assert_eq!(out(vm, "echo alive").await, "alive\n", "VMs live on without their zygote");
        }
        let next = create(&sidecar).await.expect("there is another zygote");
        assert_eq!(out(&next, "echo alive").await, "alive\n");
    } else {
        for vm in &vms {
            within(vm.exec("true", ExecOptions::new())).await.expect_err("its sidecar is gone");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_left_of_sidecars_and_zygotes_killed_at_random_moments() {
    let name = "killed::nothing_is_left_of_sidecars_and_zygotes_killed_at_random_moments";
    // It inherits whatever a killed parent leaves behind.
    if !apart(name, Duration::from_secs(3600)).await {
        return;
    }
    rustix::process::set_child_subreaper(Some(rustix::process::getpid())).unwrap();
    let creations: usize = std::env::var(CREATIONS).map_or(IN_THE_GATE, |text| text.parse().unwrap());
    let seed = std::env::var(SEED).map_or(5, |text| text.parse().unwrap());
    println!("{SEED}={seed}");
    let (mounts_before, mut random) = (mounts(), Random(seed));
    let own = std::process::id();
    for rounds_left in (0..creations.div_ceil(AT_ONCE)).rev() {
        // What the last sidecar leaves is what is looked for.
        let the_zygote = rounds_left > 0 && random.below(2) == 0;
        round(&mut random, the_zygote).await;
        until("every process is gone", DEADLINE, || async {
            tree(own).into_iter().all(|pid| pid == own || !is_alive(pid))
        })
        .await;
    }
    let left = unlocked();
    println!("left for the next sidecar: {} locked things without a holder", left.len());
    drop(create(&sidecar().await).await.unwrap());
    let still = || unlocked().intersection(&left).cloned().collect::<Vec<_>>();
    until("the next sidecar has removed it", DEADLINE, || async { still().is_empty() }).await;
    assert_eq!(mounts().difference(&mounts_before).collect::<Vec<_>>(), Vec::<&String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn two_sidecars_at_once_share_no_uids_and_take_nothing_from_each_other() {
    let (first, second) = (sidecar().await, sidecar().await);
    let mut creations = JoinSet::new();
    for n in 0..10 {
        let sidecar = if n % 2 == 0 { first.clone() } else { second.clone() };
        creations.spawn(async move { (n % 2 == 0, create(&sidecar).await.unwrap()) });
    }
    let vms = creations.join_all().await;
    let uids = |vm: &AgentOs| vm.isolation_report().uid_map[0].outside;
    if geteuid().is_root() {
        assert_eq!(vms.iter().map(|(_, vm)| uids(vm)).collect::<BTreeSet<_>>().len(), vms.len());
    }
    kill(first.pid().unwrap());
    // It sweeps when it starts, while the first one's VMs end.
    let third = create(&sidecar().await).await.unwrap();
    for (_, vm) in vms.iter().filter(|(of_first, _)| !of_first) {
        assert_eq!(out(vm, "echo alive").await, "alive\n");
        let usage = within(vm.resource_usage()).await.unwrap();
        assert!(
            usage.resources.iter().any(|resource| resource.used > 0),
            "its groups still count: {usage:?}"
        );
        if geteuid().is_root() {
            assert_ne!(uids(vm), uids(&third));
        }
    }
}
