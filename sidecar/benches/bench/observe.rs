//! What it costs to be observed: the same script in the same VM, unobserved and observed in turn.
//!
//! A sidecar has one means for processes; each is tried in a process of its own, unless `AGENTVM_OBSERVER_BACKEND` names one.

use std::{
    process::Command,
    time::{Duration, Instant},
};

use agentvm_sdk::{
    AgentOs, ClientError,
    EventCategory::{self, File, Lifecycle, Network, Process},
    ExecOptions, ObserverConfig, SpawnOptions,
};

use super::stats;

const BACKEND: &str = "AGENTVM_OBSERVER_BACKEND";
const ROUNDS: usize = 5;

/// What is run, by the name it is chosen with.
pub(crate) struct Workload {
    pub(crate) name: &'static str,
    /// Run once, before anything is timed; what lacks something for it is left out.
    prepare: &'static str,
    script: &'static str,
    /// Processes that its shell starts, at least.
    processes: usize,
}

pub(crate) const WORKLOADS: [Workload; 3] = [
    Workload {
        name: "observe_serial",
        prepare: "true",
        script: "i=0; while [ $i -lt 2000 ]; do /bin/true; i=$((i+1)); done",
        processes: 2000,
    },
    Workload {
        name: "observe_storm",
        prepare: "true",
        script: "i=0; while [ $i -lt 2000 ]; do
                   /bin/true & i=$((i+1)); [ $((i % 200)) -ne 0 ] || wait
                 done; wait",
        processes: 2000,
    },
    Workload {
        name: "observe_compile",
        prepare: "command -v gcc && for i in $(seq 30); do
                    printf '#include <%s>\\n' stdio.h stdlib.h string.h unistd.h math.h signal.h > part$i.c
                    echo \"int part$i(int n) { return printf(\\\"%d\\\", n + $i); }\" >> part$i.c
                  done",
        script: "for i in $(seq 30); do gcc -c part$i.c; done",
        processes: 60,
    },
];

const OBSERVED: [(&str, &[EventCategory]); 3] = [
    ("process", &[Process]),
    ("file, process", &[File, Process]),
    ("all", &[Lifecycle, File, Network, Process]),
];

pub(crate) async fn observe(workload: &Workload) -> Result<(), ClientError> {
    if let Ok(backend) = std::env::var(BACKEND) {
        return observe_by(&backend, workload).await;
    }
    for backend in ["ptrace", "notification"] {
        let own = std::env::current_exe().expect("this program has a path");
        let status = Command::new(own).arg(workload.name).env(BACKEND, backend).status().expect("it starts");
        assert!(status.success(), "{} by {backend}: {status}", workload.name);
    }
    Ok(())
}

async fn observe_by(backend: &str, workload: &Workload) -> Result<(), ClientError> {
    let vm = AgentOs::create(super::config()).await?;
    if vm.exec(workload.prepare, ExecOptions::new()).await?.exit_code != 0 {
        println!("{}: this machine lacks what it takes", workload.name);
        return vm.dispose().await;
    }
    let mut plain = Vec::new();
    let mut observed = OBSERVED.map(|_| Vec::new());
    // The first round is paid cold, and has the sidecar find out what it can see.
    for round in 0..=ROUNDS {
        let mut times = vec![(&mut plain, run(&vm, workload, &[]).await?)];
        for (all, (_, categories)) in observed.iter_mut().zip(OBSERVED) {
            times.push((all, run(&vm, workload, categories).await?));
        }
        for (all, time) in times.into_iter().filter(|_| round > 0) {
            all.push(time);
        }
    }
    for ((categories, _), times) in OBSERVED.iter().zip(&observed) {
        stats::in_turn(&format!("{} by {backend}: {categories}", workload.name), &plain, times);
    }
    vm.dispose().await
}

/// How long it takes from its start to its end, told with all that was seen.
async fn run(
    vm: &AgentOs,
    workload: &Workload,
    categories: &[EventCategory],
) -> Result<Duration, ClientError> {
    let mut options = SpawnOptions::new();
    if !categories.is_empty() {
        options = options.observe(ObserverConfig::with_categories(categories.iter().copied()));
    }
    let begun = Instant::now();
    let process = vm.spawn("sh", ["-c", workload.script], options)?;
    let exit = process.wait().await?;
    let time = begun.elapsed();
    assert_eq!(exit.code, 0, "{}", workload.name);
    if let Some(events) = process.observer() {
        let is_end = |event: &agentvm_sdk::ObserverEvent| event.kind.as_str() == "descendant-exited";
        let ends = events.drain().iter().filter(|event| is_end(event)).count();
        assert!(ends >= workload.processes, "{}: {ends} ends", workload.name);
    }
    Ok(time)
}
