//! What a VM and an exec cost, beside the floor measured in the same loop: `cargo xtask bench [-- NAME…]`.
//!
//! Every figure stands beside plain processes run in turn with it, because absolute times differ from machine to
//! machine and from minute to minute; the ratio is what to compare. Figures never gate a test.

mod beside;
mod floor;
mod observe;
mod stats;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use agentvm_sdk::{AgentOs, AgentOsConfig, ClientError, ExecOptions, Isolation, SidecarConfig};
use stats::Samples;

const TRUE: &str = "/bin/true";

fn main() {
    agentvm_sidecar::run_if_requested();
    // cargo adds `--bench`; everything else names what to run.
    let wanted: Vec<String> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    let wants = |name: &str| wanted.is_empty() || wanted.iter().any(|wanted| name.contains(wanted.as_str()));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        if wants("exec_argv") {
            exec_argv().await.expect("exec_argv");
        }
        if wants("row") {
            row().await.expect("row");
        }
        if wants("exec_shell") {
            exec_shell().await.expect("exec_shell");
        }
        if wants("vm") {
            vm().await.expect("vm");
        }
        if wants("stdout") {
            stdout().await.expect("stdout");
        }
        if wants("parallel") {
            parallel().await.expect("parallel");
        }
        if wants("beside") {
            beside().await.expect("beside");
        }
        for workload in observe::WORKLOADS.iter().filter(|workload| wants(workload.name)) {
            observe::observe(workload).await.expect(workload.name);
        }
    });
}

fn config() -> AgentOsConfig {
    AgentOsConfig::new().sidecar(SidecarConfig::CurrentExe)
}

/// `exec_argv(/bin/true)` beside `posix_spawn` + `waitpid` of the same file.
async fn exec_argv() -> Result<(), ClientError> {
    let vm = AgentOs::create(config()).await?;
    let mut floor = Samples::new("posix_spawn true");
    let mut ours = Samples::new("exec_argv true");
    for _ in 0..1100 {
        floor.time(|| floor::spawn_and_wait(TRUE, &[TRUE]));
        let result = ours.time_async(vm.exec_argv(TRUE, [""; 0], ExecOptions::new())).await?;
        assert_eq!(result.exit_code, 0);
    }
    stats::compare(&floor, &ours);
    vm.dispose().await
}

/// 1000 execs one right behind the other beside 1000 plain processes in the same way.
async fn row() -> Result<(), ClientError> {
    const COUNT: u32 = 1000;
    let vm = AgentOs::create(config()).await?;
    for _ in 0..3 {
        let begun = Instant::now();
        (0..COUNT).for_each(|_| floor::spawn_and_wait(TRUE, &[TRUE]));
        let plain = begun.elapsed();
        let begun = Instant::now();
        for _ in 0..COUNT {
            assert_eq!(vm.exec_argv(TRUE, [""; 0], ExecOptions::new()).await?.exit_code, 0);
        }
        stats::rate("execs in a row", COUNT, plain, begun.elapsed());
    }
    vm.dispose().await
}

/// `exec("echo hello")` with its output beside std's `Command` with the same.
async fn exec_shell() -> Result<(), ClientError> {
    let vm = AgentOs::create(config()).await?;
    let mut floor = Samples::new("Command sh -c echo");
    let mut ours = Samples::new("exec echo");
    for _ in 0..600 {
        let plain = || std::process::Command::new("sh").args(["-c", "echo hello"]).output();
        assert_eq!(floor.time(plain).expect("sh runs").stdout, b"hello\n");
        let result = ours.time_async(vm.exec("echo hello", ExecOptions::new())).await?;
        assert_eq!(result.stdout, "hello\n");
    }
    stats::compare(&floor, &ours);
    vm.dispose().await
}

/// Creating and disposing of a VM beside the floor, at both levels of isolation.
async fn vm() -> Result<(), ClientError> {
    for (isolation, create) in
        [(Isolation::Sandbox, "VM create"), (Isolation::Confined, "confined VM create")]
    {
        let config = || config().isolation(isolation);
        let keep = AgentOs::create(config()).await?;
        let (mut floor, mut create) = (Samples::new("posix_spawn true"), Samples::new(create));
        let (mut boot, mut dispose) = (Samples::new("  of it in the sidecar"), Samples::new("VM dispose"));
        for _ in 0..300 {
            floor.time(|| floor::spawn_and_wait(TRUE, &[TRUE]));
            let vm = create.time_async(AgentOs::create(config())).await?;
            boot.push(vm.boot_time());
            dispose.time_async(vm.dispose()).await?;
        }
        stats::compare(&floor, &create);
        stats::compare(&floor, &boot);
        stats::compare(&floor, &dispose);
        keep.dispose().await?;
    }
    Ok(())
}

/// 1 GiB of standard output beside the same through a plain pipe.
async fn stdout() -> Result<(), ClientError> {
    const BYTES: u64 = 1 << 30;
    let vm = AgentOs::create(config()).await?;
    let command = format!("head -c {BYTES} /dev/zero");
    for _ in 0..3 {
        let plain = floor::read_all("sh", &["-c", &command], BYTES);
        let seen = Arc::new(AtomicU64::new(0));
        let counter = seen.clone();
        let count = move |bytes: &[u8]| _ = counter.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        let begun = Instant::now();
        vm.exec(&command, ExecOptions::new().capture_stdio(false).on_stdout(count)).await?;
        let ours = begun.elapsed();
        assert_eq!(seen.load(Ordering::Relaxed), BYTES);
        stats::throughput("1 GiB of stdout", BYTES, plain, ours);
    }
    vm.dispose().await
}

/// 400 execs at once beside 400 plain processes at once.
async fn parallel() -> Result<(), ClientError> {
    const COUNT: u32 = 400;
    let vm = AgentOs::create(config()).await?;
    for _ in 0..3 {
        let begun = Instant::now();
        let children: Vec<_> = (0..COUNT).map(|_| floor::spawn(TRUE, &[TRUE])).collect();
        children.into_iter().for_each(floor::wait);
        let plain = begun.elapsed();
        let begun = Instant::now();
        let mut runs = tokio::task::JoinSet::new();
        for _ in 0..COUNT {
            let vm = vm.clone();
            runs.spawn(async move { vm.exec_argv(TRUE, [""; 0], ExecOptions::new()).await });
        }
        while let Some(result) = runs.join_next().await {
            assert_eq!(result.expect("no panic")?.exit_code, 0);
        }
        stats::rate("execs at once", COUNT, plain, begun.elapsed());
    }
    vm.dispose().await
}

/// Small calls beside a flood.
async fn beside() -> Result<(), ClientError> {
    beside::beside_a_flood(AgentOs::create(config()).await?).await
}
