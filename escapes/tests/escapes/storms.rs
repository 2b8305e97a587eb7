//! While one VM rages, it and its neighbour can still be used and the sidecar's memory stays what it was; then the storm
//! is ended and nothing of it is left.

use std::collections::HashSet;
use std::fs;
use std::future::Future;
use std::time::{Duration, Instant};

use agentvm_escapes::{Scene, enforces};
use agentvm_sdk::{AgentOs, AgentOsConfig, ExecOptions, Process, ProcessStatus, SidecarConfig};

use crate::program;

/// Nothing here takes so long, however busy the machine.
const DEADLINE: Duration = Duration::from_secs(60);
/// What the sidecar's own memory may grow by in a storm: buffers, tables and what its allocator keeps.
const GROWTH_KIB: u64 = 16 << 10;

/// A storm, and what the sidecar's own memory was before.
struct Storm {
    scene: Scene,
    process: Process,
    sidecar: u32,
    memory_kib: u64,
}

async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE, future).await.expect("it is done in time")
}

/// Resident memory that is a process's own, in KiB.
fn memory_kib(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

async fn out(vm: &AgentOs, command: &str) -> String {
    within(vm.exec(command, ExecOptions::new())).await.unwrap().stdout
}

impl Storm {
    async fn raise(name: &str) -> Self {
        Self::raise_with(name, AgentOsConfig::new().pids(200).disk_bytes(64 << 20)).await
    }

    async fn raise_with(name: &str, config: AgentOsConfig) -> Self {
        let programs = program("attacker");
        let scene = within(Scene::set(programs.parent().unwrap(), config)).await.unwrap();
        // What both need for the first time is there.
        for vm in [&scene.raging, &scene.calm] {
            assert_eq!(out(vm, "echo ready").await, "ready\n");
            within(vm.all_processes()).await.unwrap();
        }
        let sidecar = scene.calm.sidecar().pid().unwrap();
        let memory_kib = memory_kib(sidecar);
        let process = within(scene.raise(name)).await.unwrap();
        Self { scene, process, sidecar, memory_kib }
    }

    /// What a client does meanwhile: in the storm's VM as far as there is room, in the other as ever.
    async fn live_on(&self) {
        for round in 0..3 {
            let rows = within(self.scene.raging.all_processes()).await.unwrap();
            assert!(rows.iter().any(|row| row.pid == 1), "{rows:?}");
            let begun = Instant::now();
            assert_eq!(out(&self.scene.calm, &format!("echo {round}")).await, format!("{round}\n"));
            println!("an exec next door took {:?}", begun.elapsed());
        }
    }

    /// An exec beside the storm gets its result or an error that says why it does not.
    async fn exec_beside(&self) -> Result<String, String> {
        let options = ExecOptions::new().timeout(Duration::from_secs(5));
        match within(self.scene.raging.exec("echo beside", options)).await {
            Ok(result) if result.timed_out => Err("timed out".to_owned()),
            Ok(result) => Ok(result.stdout),
            Err(error) => Err(error.code().as_str().to_owned()),
        }
    }

    /// Ends the storm by a kill of its tree: nothing of it is left, and its VM is as good as new.
    async fn calm_down(self) {
        let begun = Instant::now();
        within(self.scene.end(&self.process)).await.unwrap();
        println!("it was over after {:?}", begun.elapsed());
        for vm in [&self.scene.raging, &self.scene.calm] {
            assert_eq!(out(vm, "echo alive").await, "alive\n");
        }
        let after = memory_kib(self.sidecar);
        println!("the sidecar's memory: {} KiB, then {after} KiB", self.memory_kib);
        assert!(after < self.memory_kib + GROWTH_KIB, "{} KiB, then {after} KiB", self.memory_kib);
    }
}

#[tokio::test]
async fn e58_while_a_guest_stops_all_it_sees_each_exec_ends_or_says_why_not() {
    let storm = Storm::raise("stop").await;
    let options = || ExecOptions::new().timeout(Duration::from_millis(200));
    let mut outcomes = Vec::new();
    for _ in 0..100 {
        let outcome = within(storm.scene.raging.exec_argv("true", [""; 0], options())).await;
        outcomes.push(match outcome {
            Ok(result) => if result.timed_out { "stopped" } else { "ended" }.to_owned(),
            Err(error) => error.code().as_str().to_owned(),
        });
    }
    let kinds: HashSet<_> = outcomes.iter().map(String::as_str).collect();
    println!("{} ended, of {kinds:?}", outcomes.iter().filter(|outcome| *outcome == "ended").count());
    storm.live_on().await;
    storm.calm_down().await;
}

#[tokio::test]
async fn e64_a_fork_bomb_leaves_its_vm_controllable_and_its_neighbour_alone() {
    let storm = Storm::raise("fork").await;
    storm.live_on().await;
    let beside = storm.exec_beside().await;
    println!("an exec beside it: {beside:?}");
    storm.calm_down().await;
}

#[tokio::test]
async fn e65_a_thread_bomb_leaves_its_vm_controllable_and_its_neighbour_alone() {
    let storm = Storm::raise("threads").await;
    storm.live_on().await;
    storm.calm_down().await;
}

#[tokio::test]
async fn e67_a_process_in_disguise_is_one_row_with_what_it_wrote() {
    let storm = Storm::raise("disguise").await;
    let rows = within(storm.scene.raging.all_processes()).await.unwrap();
    let live: Vec<_> = rows.iter().filter(|row| row.status != ProcessStatus::Exited).collect();
    let [init, disguised] = &live[..] else { panic!("{live:#?}") };
    assert_eq!((init.pid, init.command.as_str()), (1, "agentvm-init"));
    assert_eq!((disguised.command.as_str(), disguised.pid), ("init\n1) R 0", storm.process.pid()));
    let [argument] = &disguised.args[..] else { panic!("{:?}", disguised.args) };
    assert!(argument.starts_with("agentvm-init\n2 (init) R 1 !"), "{argument}");
    storm.calm_down().await;
}

#[tokio::test]
async fn e68_two_hundred_argument_lists_of_six_mebibytes_are_listed_in_little_memory() {
    let storm = Storm::raise_with("argv", AgentOsConfig::new()).await;
    let rows = within(storm.scene.raging.all_processes()).await.unwrap();
    let talkers: Vec<_> =
        rows.iter().filter(|row| row.args.get(1).is_some_and(|arg| arg == "idle")).collect();
    assert_eq!(talkers.len(), 200);
    assert!(talkers.iter().all(|row| row.args_truncated), "cut and marked");
    storm.live_on().await;
    storm.calm_down().await;
}

#[tokio::test]
async fn e116_descriptors_on_their_way_in_one_vm_keep_nobody_elses_from_arriving() {
    let storm = Storm::raise("inflight").await;
    storm.live_on().await;
    assert_eq!(storm.exec_beside().await.as_deref(), Ok("beside\n"));
    storm.calm_down().await;
}

#[tokio::test]
async fn a_guest_that_opens_all_it_may_and_fills_every_pipe_is_alone_with_that() {
    let storm = Storm::raise("descriptors").await;
    storm.live_on().await;
    assert_eq!(storm.exec_beside().await.as_deref(), Ok("beside\n"));
    let large = out(&storm.scene.calm, "head -c 1000000 /dev/zero | tr '\\0' x").await;
    assert_eq!(large.len(), 1_000_000);
    storm.calm_down().await;
}

#[tokio::test]
async fn e119_a_full_disk_is_full_for_its_own_vm_only() {
    let storm = Storm::raise("disk").await;
    storm.live_on().await;
    assert_eq!(out(&storm.scene.calm, "echo x > f && cat f").await, "x\n");
    let inside = storm.scene.raging.exec("echo x > f || echo full", ExecOptions::new());
    assert_eq!(within(inside).await.unwrap().stdout, "full\n");
    storm.calm_down().await;
}

#[tokio::test]
async fn e121_a_guest_that_takes_memory_again_and_again_takes_only_its_own() {
    let limited = AgentOsConfig::new().memory_bytes(64 << 20);
    let own = SidecarConfig::Binary(program("agentvm-sidecar"));
    let probe = within(AgentOs::create(AgentOsConfig::new().sidecar(own))).await.unwrap();
    let report = probe.isolation_report().limits.iter().find(|limit| limit.name == "memory_bytes").unwrap();
    if let Some(why) = &report.missing {
        assert!(!enforces(&probe, "memory_bytes"), "not enforced, and the report says so");
        return println!("skipped: memory is not limited here: {why}");
    }
    let storm = Storm::raise_with("memory", limited.clone()).await;
    storm.live_on().await;
    storm.calm_down().await;

    // It is no process's own: the kernel ends one after the other until it meets the one that holds it.
    let storm = Storm::raise_with("memfd", limited).await;
    assert_eq!(within(storm.process.wait()).await.unwrap().code, 137);
    storm.live_on().await;
    storm.calm_down().await;
}

#[tokio::test]
async fn a_guest_that_computes_on_every_processor_delays_nobody_for_long() {
    let storm = Storm::raise("cpu").await;
    storm.live_on().await;
    assert_eq!(storm.exec_beside().await.as_deref(), Ok("beside\n"));
    storm.calm_down().await;
}

#[tokio::test]
async fn a_guest_that_writes_without_end_fills_no_memory_of_the_sidecar() {
    let storm = Storm::raise("output").await;
    storm.live_on().await;
    assert_eq!(storm.exec_beside().await.as_deref(), Ok("beside\n"));
    storm.calm_down().await;
}
