//! Many VMs alive together, and what is left when they are disposed of. Here 100; `cargo xtask soak` makes 1000, and
//! holds to figures that a busy machine would miss.

use std::{
    collections::BTreeSet,
    fs,
    path::Path,
    time::{Duration, Instant},
};

use agentvm_sdk::{AgentOs, AgentOsConfig, Sidecar};
use tokio::task::JoinSet;

use crate::support::{DEADLINE, OPENED_ONCE, descriptors, inits, out, sidecar, tree, until, within};

/// How many VMs; set, it also says that figures are held to.
const VMS: &str = "AGENTVM_SOAK_VMS";
/// Unless it says otherwise.
const IN_THE_GATE: usize = 100;
/// What an idle VM may cost.
const KIB_PER_VM: u64 = 1024;
/// How long it may take to dispose of all.
const DISPOSAL: Duration = Duration::from_secs(2);

/// What a sidecar has of the host.
#[derive(Debug, PartialEq, Eq)]
struct Traces {
    /// Its processes.
    processes: BTreeSet<u32>,
    /// Namespaces of any kind that they are in.
    namespaces: BTreeSet<String>,
    /// Mounts that they see.
    mounts: usize,
    /// Groups of its VMs.
    groups: BTreeSet<String>,
    /// Ranges of uids that it holds.
    ranges: BTreeSet<String>,
}

impl Traces {
    fn of(sidecar: u32, vms: &BTreeSet<String>) -> Self {
        let processes: BTreeSet<u32> = tree(sidecar).into_iter().collect();
        let mounts = |pid: &u32| {
            fs::read_to_string(format!("/proc/{pid}/mountinfo")).map_or(0, |mounts| mounts.lines().count())
        };
        Self {
            namespaces: processes.iter().flat_map(|pid| links(&format!("/proc/{pid}/ns"))).collect(),
            mounts: processes.iter().map(mounts).sum(),
            groups: groups(Path::new("/sys/fs/cgroup"), vms),
            ranges: links(&format!("/proc/{sidecar}/fd"))
                .into_iter()
                .filter(|path| path.starts_with("/run/agentvm/uid-ranges"))
                .collect(),
            processes,
        }
    }
}

/// Where the links in a folder lead; those that may be read.
fn links(folder: &str) -> Vec<String> {
    let links = names(Path::new(folder))
        .into_iter()
        .filter_map(|name| fs::read_link(format!("{folder}/{name}")).ok());
    links.map(|path| path.to_string_lossy().into_owned()).collect()
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// The groups below a folder that belong to these VMs.
fn groups(folder: &Path, vms: &BTreeSet<String>) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for name in names(folder) {
        let path = folder.join(&name);
        if !path.is_dir() {
            continue;
        }
        if name.strip_prefix("vm-").is_some_and(|id| vms.contains(id)) {
            found.insert(path.display().to_string());
        }
        found.extend(groups(&path, vms));
    }
    found
}

/// What the whole machine has left, KiB.
fn available_kib() -> u64 {
    let memory = fs::read_to_string("/proc/meminfo").unwrap();
    let line = memory.lines().find_map(|line| line.strip_prefix("MemAvailable:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

async fn create(sidecar: &Sidecar) -> AgentOs {
    within(AgentOs::create(AgentOsConfig::new().connection(sidecar.clone()))).await.unwrap()
}

async fn dispose_of_all(vms: Vec<AgentOs>) -> Duration {
    let begun = Instant::now();
    let mut disposals = JoinSet::new();
    for vm in vms {
        disposals.spawn(async move { within(vm.dispose()).await.unwrap() });
    }
    disposals.join_all().await;
    begun.elapsed()
}

fn median(times: &[Duration]) -> Duration {
    let mut times = times.to_vec();
    times.sort_unstable();
    times[times.len() / 2]
}

#[tokio::test]
async fn e136_many_vms_live_together_and_nothing_is_left_of_them() {
    let strict = std::env::var(VMS).ok();
    let count = strict.as_ref().map_or(IN_THE_GATE, |text| text.parse().unwrap());
    let sidecar = sidecar().await;
    let pid = sidecar.pid().unwrap();
    // What is needed once is there.
    dispose_of_all(vec![create(&sidecar).await]).await;
    until("the first VM is gone", DEADLINE, || async { inits(pid).is_empty() }).await;
    let (before, open) = (Traces::of(pid, &BTreeSet::new()), descriptors(pid));
    let available = available_kib();

    let (mut vms, mut times) = (Vec::with_capacity(count), Vec::with_capacity(count));
    for _ in 0..count {
        let begun = Instant::now();
        vms.push(create(&sidecar).await);
        times.push(begun.elapsed());
    }
    let (first, last) = (median(&times[..count / 10]), median(&times[count - count / 10..]));
    let each_kib = available.saturating_sub(available_kib()) / count as u64;
    assert_eq!(inits(pid).len(), count, "all are alive");
    let begun = Instant::now();
    for vm in &vms {
        assert_eq!(out(vm, "echo alive").await, "alive\n");
    }
    let exec = begun.elapsed() / u32::try_from(count).unwrap();
    let ids: BTreeSet<String> = vms.iter().map(|vm| vm.id().to_string()).collect();
    let namespaces: BTreeSet<_> =
        vms.iter().map(|vm| &vm.isolation_report().namespaces.as_ref().unwrap().net).collect();
    assert_eq!(namespaces.len(), count, "each has its own");
    let disposal = dispose_of_all(vms).await;
    println!(
        "{count} VMs: created in {first:?} at first, {last:?} at last; {each_kib} KiB each; an exec {exec:?}; \
         all disposed of in {disposal:?}"
    );

    until("nothing is left", DEADLINE, || async { Traces::of(pid, &ids) == before }).await;
    until("descriptors are as before", DEADLINE, || async { descriptors(pid) <= open + OPENED_ONCE }).await;
    if strict.is_some() {
        assert!(last <= first * 2, "creation took {first:?} and then {last:?}");
        assert!(each_kib <= KIB_PER_VM, "{each_kib} KiB each");
        assert!(disposal <= DISPOSAL, "{disposal:?}");
    }
}
