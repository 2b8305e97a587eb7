//! While one VM rages, it and its neighbour can still be used and the sidecar's memory stays what it was; then the storm
//! is ended and nothing of it is left.

use std::collections::HashSet;
use std::fs;
use std::future::Future;
use std::time::{Duration, Instant};

use agentvm_escapes::{ATTACKER, enforces, let_in};
use agentvm_sdk::{
    AgentOs, AgentOsConfig, ExecOptions, Output, Process, ProcessStatus, SidecarConfig, SpawnOptions,
};

use crate::program;

/// Nothing here takes so long, however busy the machine.
const DEADLINE: Duration = Duration::from_secs(60);
/// What the sidecar's own memory may grow by in a storm: buffers, tables and what its allocator keeps.
const GROWTH_KIB: u64 = 16 << 10;

/// A VM with a storm in it, and its neighbour in the same sidecar.
struct Scene {
    raging: AgentOs,
    calm: AgentOs,
    storm: Process,
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

impl Scene {
    async fn of(name: &str) -> Self {
        Self::with(name, AgentOsConfig::new().pids(200).disk_bytes(64 << 20)).await
    }

    async fn with(name: &str, config: AgentOsConfig) -> Self {
        let own = SidecarConfig::Binary(program("agentvm-sidecar"));
        let connection = within(AgentOs::create_sidecar(&own)).await.unwrap();
        let calm =
            within(AgentOs::create(AgentOsConfig::new().connection(connection.clone()))).await.unwrap();
        let raging = within(AgentOs::create(config.connection(connection.clone()))).await.unwrap();
        within(let_in(&raging, &program("attacker"))).await.unwrap();
        // What both need for the first time is there.
        for vm in [&raging, &calm] {
            assert_eq!(out(vm, "echo ready").await, "ready\n");
            within(vm.all_processes()).await.unwrap();
        }
        let sidecar = connection.pid().unwrap();
        let memory_kib = memory_kib(sidecar);
        let storm = raging.spawn(ATTACKER, ["storm", name], SpawnOptions::new()).unwrap();
        let mut said = Vec::new();
        let mut output = storm.stdout();
        while !said.starts_with(b"raging\n") {
            match within(output.next()).await {
                Some(Ok(Output::Data(bytes))) => said.extend_from_slice(&bytes),
                other => panic!("{other:?} after {:?}", String::from_utf8_lossy(&said)),
            }
        }
        Self { raging, calm, storm, sidecar, memory_kib }
    }

    /// What a client does meanwhile: in the storm's VM as far as there is room, in the other as ever.
    async fn live_on(&self) {
        for round in 0..3 {
            let rows = within(self.raging.all_processes()).await.unwrap();
            assert!(rows.iter().any(|row| row.pid == 1), "{rows:?}");
            let begun = Instant::now();
            assert_eq!(out(&self.calm, &format!("echo {round}")).await, format!("{round}\n"));
            println!("an exec next door took {:?}", begun.elapsed());
        }
    }

    /// An exec beside the storm gets its result or an error that says why it does not.
    async fn exec_beside(&self) -> Result<String, String> {
        let options = ExecOptions::new().timeout(Duration::from_secs(5));
        match within(self.raging.exec("echo beside", options)).await {
            Ok(result) if result.timed_out => Err("timed out".to_owned()),
            Ok(result) => Ok(result.stdout),
            Err(error) => Err(error.code().as_str().to_owned()),
        }
    }

    /// Ends the storm by a kill of its tree: nothing of it is left, and its VM is as good as new.
    async fn calm_down(self) {
        let begun = Instant::now();
        self.storm.kill();
        within(self.storm.wait()).await.unwrap();
        let live = async |vm: &AgentOs| {
            let rows = within(vm.all_processes()).await.unwrap();
            rows.iter().filter(|row| row.status != ProcessStatus::Exited).count()
        };
        within(async { while live(&self.raging).await > 1 {} }).await;
        println!("it was over after {:?}", begun.elapsed());
        for vm in [&self.raging, &self.calm] {
            assert_eq!(out(vm, "echo alive").await, "alive\n");
        }
        let after = memory_kib(self.sidecar);
        println!("the sidecar's memory: {} KiB, then {after} KiB", self.memory_kib);
        assert!(after < self.memory_kib + GROWTH_KIB, "{} KiB, then {after} KiB", self.memory_kib);
    }
}

#[tokio::test]
async fn e58_while_a_guest_stops_all_it_sees_each_exec_ends_or_says_why_not() {
    let scene = Scene::of("stop").await;
    let options = || ExecOptions::new().timeout(Duration::from_millis(200));
    let mut outcomes = Vec::new();
    for _ in 0..100 {
        let outcome = within(scene.raging.exec_argv("true", [""; 0], options())).await;
        outcomes.push(match outcome {
            Ok(result) => if result.timed_out { "stopped" } else { "ended" }.to_owned(),
            Err(error) => error.code().as_str().to_owned(),
        });
    }
    let kinds: HashSet<_> = outcomes.iter().map(String::as_str).collect();
    println!("{} ended, of {kinds:?}", outcomes.iter().filter(|outcome| *outcome == "ended").count());
    scene.live_on().await;
    scene.calm_down().await;
}

#[tokio::test]
async fn e64_a_fork_bomb_leaves_its_vm_controllable_and_its_neighbour_alone() {
    let scene = Scene::of("fork").await;
    scene.live_on().await;
    let beside = scene.exec_beside().await;
    println!("an exec beside it: {beside:?}");
    scene.calm_down().await;
}

#[tokio::test]
async fn e67_a_process_in_disguise_is_one_row_with_what_it_wrote() {
    let scene = Scene::of("disguise").await;
    let rows = within(scene.raging.all_processes()).await.unwrap();
    let live: Vec<_> = rows.iter().filter(|row| row.status != ProcessStatus::Exited).collect();
    let [init, disguised] = &live[..] else { panic!("{live:#?}") };
    assert_eq!((init.pid, init.command.as_str()), (1, "agentvm-init"));
    assert_eq!((disguised.command.as_str(), disguised.pid), ("init\n1) R 0", scene.storm.pid()));
    let [argument] = &disguised.args[..] else { panic!("{:?}", disguised.args) };
    assert!(argument.starts_with("agentvm-init\n2 (init) R 1 !"), "{argument}");
    scene.calm_down().await;
}

#[tokio::test]
async fn e68_two_hundred_argument_lists_of_six_mebibytes_are_listed_in_little_memory() {
    let scene = Scene::with("argv", AgentOsConfig::new()).await;
    let rows = within(scene.raging.all_processes()).await.unwrap();
    let talkers: Vec<_> =
        rows.iter().filter(|row| row.args.get(1).is_some_and(|arg| arg == "idle")).collect();
    assert_eq!(talkers.len(), 200);
    assert!(talkers.iter().all(|row| row.args_truncated), "cut and marked");
    scene.live_on().await;
    scene.calm_down().await;
}

#[tokio::test]
async fn e116_descriptors_on_their_way_in_one_vm_keep_nobody_elses_from_arriving() {
    let scene = Scene::of("inflight").await;
    scene.live_on().await;
    assert_eq!(scene.exec_beside().await.as_deref(), Ok("beside\n"));
    scene.calm_down().await;
}

#[tokio::test]
async fn a_guest_that_opens_all_it_may_and_fills_every_pipe_is_alone_with_that() {
    let scene = Scene::of("descriptors").await;
    scene.live_on().await;
    assert_eq!(scene.exec_beside().await.as_deref(), Ok("beside\n"));
    let large = out(&scene.calm, "head -c 1000000 /dev/zero | tr '\\0' x").await;
    assert_eq!(large.len(), 1_000_000);
    scene.calm_down().await;
}

#[tokio::test]
async fn e119_a_full_disk_is_full_for_its_own_vm_only() {
    let scene = Scene::of("disk").await;
    scene.live_on().await;
    assert_eq!(out(&scene.calm, "echo x > f && cat f").await, "x\n");
    let inside = scene.raging.exec("echo x > f || echo full", ExecOptions::new());
    assert_eq!(within(inside).await.unwrap().stdout, "full\n");
    scene.calm_down().await;
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
    let scene = Scene::with("memory", limited.clone()).await;
    scene.live_on().await;
    scene.calm_down().await;

    // It is no process's own: the kernel ends one after the other until it meets the one that holds it.
    let scene = Scene::with("memfd", limited).await;
    assert_eq!(within(scene.storm.wait()).await.unwrap().code, 137);
    scene.live_on().await;
    scene.calm_down().await;
}

#[tokio::test]
async fn a_guest_that_computes_on_every_processor_delays_nobody_for_long() {
    let scene = Scene::of("cpu").await;
    scene.live_on().await;
    assert_eq!(scene.exec_beside().await.as_deref(), Ok("beside\n"));
    scene.calm_down().await;
}

#[tokio::test]
async fn a_guest_that_writes_without_end_fills_no_memory_of_the_sidecar() {
    let scene = Scene::of("output").await;
    scene.live_on().await;
    assert_eq!(scene.exec_beside().await.as_deref(), Ok("beside\n"));
    scene.calm_down().await;
}
