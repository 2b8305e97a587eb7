//! Limits: those the sidecar itself lives under, and those of its VMs.

use std::process::Command;

use agentvm_sdk::{AgentOs, AgentOsConfig, ClientError, ExecOptions, ExitCause, SpawnOptions};
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};

use crate::support::{DEADLINE, out, said, sh, sidecar, spawn, tree, until, vm, vm_with, within};

/// Why this host cannot enforce a limit.
fn missing(vm: &AgentOs, name: &str) -> Option<String> {
    let limits = &vm.isolation_report().limits;
    limits.iter().find(|limit| limit.name == name).unwrap().missing.clone()
}

/// How much of it the VM uses, and its limit.
async fn used(vm: &AgentOs, name: &str) -> (u64, Option<u64>) {
    let usage = within(vm.resource_usage()).await.unwrap();
    let found = usage.resources.into_iter().find(|resource| resource.name == name).unwrap();
    (found.used, found.limit)
}

/// Keeps all of an endless line.
const HOG: &str = "tail /dev/zero";

#[tokio::test]
async fn a_sidecar_that_may_write_no_file_says_so_and_lives() {
    let sidecar = sidecar().await;
    let sidecar_and_zygote = tree(sidecar.pid().unwrap());
    let config = || AgentOsConfig::new().connection(sidecar.clone());
    let vm = within(AgentOs::create(config())).await.unwrap();
    for pid in sidecar_and_zygote {
        let pid = Pid::from_raw(pid.cast_signed()).unwrap();
        let Rlimit { maximum, .. } = getrlimit(Resource::Fsize);
        prlimit(Some(pid), Resource::Fsize, Rlimit { current: Some(0), maximum }).unwrap();
    }
    // Long arguments go through a file of memory.
    let long = within(vm.exec_argv("true", ["x".repeat(100_000)], ExecOptions::new())).await.unwrap_err();
    assert!(
        matches!(&long, ClientError::SpawnFailed { code, step, .. } if code.as_str() == "EFBIG" && step == "request"),
        "{long:?}"
    );
    let refused = within(AgentOs::create(config())).await.unwrap_err();
    let ClientError::Rejected(rejection) = &refused else { panic!("{refused:?}") };
    assert_eq!(rejection.details.step.as_deref(), Some("etc"));
    assert!(rejection.message.contains("ulimit -f"), "{}", rejection.message);
    assert_eq!(out(&vm, "echo x > f && cat f").await, "x\n");
}

#[tokio::test]
async fn a_process_that_takes_more_memory_than_its_vm_has_ends_with_that_cause() {
    if let Some(why) = missing(&vm().await, "memory_bytes") {
        let refused = within(AgentOs::create(AgentOsConfig::new().memory_bytes(64 << 20))).await.unwrap_err();
        let ClientError::Rejected(rejection) = &refused else { panic!("{refused:?}") };
        assert_eq!(rejection.code.as_str(), "unsupported");
        assert_eq!(rejection.details.field.as_deref(), Some("limits.memory_bytes"));
        return println!("skipped: memory is not limited here: {why}");
    }
    let vm = vm_with(AgentOsConfig::new().memory_bytes(64 << 20)).await;
    let killed = within(vm.exec_argv("tail", ["/dev/zero"], ExecOptions::new())).await.unwrap();
    assert_eq!((killed.exit_code, killed.cause), (137, ExitCause::Oom));
    let by_itself = sh(&vm, "kill -KILL $$").await;
    assert_eq!((by_itself.exit_code, by_itself.cause), (137, ExitCause::Signaled), "that was another one");
    assert_eq!(out(&vm, "echo alive").await, "alive\n");
}

#[tokio::test]
async fn an_exec_has_a_memory_limit_of_its_own_or_is_refused() {
    let vm = vm().await;
    let limited = || ExecOptions::new().memory_limit(32 << 20);
    let run = |options| within(vm.exec_argv("tail", ["/dev/zero"], options));
    if let Some(why) = missing(&vm, "memory_bytes") {
        let refused = run(limited()).await.unwrap_err();
        assert_eq!(refused.code().as_str(), "unsupported", "{refused:?}");
        assert!(refused.to_string().contains(&why), "{refused}");
        let failed = run(limited().allow_best_effort(true)).await.unwrap();
        assert_eq!((failed.exit_code, failed.cause), (1, ExitCause::Exited), "{}", failed.stderr);
        assert!(failed.stderr.contains("memory"), "{}", failed.stderr);
    } else {
        for options in [limited(), limited().allow_best_effort(true)] {
            let killed = run(options).await.unwrap();
            assert_eq!((killed.exit_code, killed.cause), (137, ExitCause::Oom));
        }
        // Of the tree the largest ends; the shell tells that it did.
        let shell = within(vm.exec(&format!("{HOG}; echo $?"), limited())).await.unwrap();
        assert_eq!((shell.exit_code, shell.stdout.as_str()), (0, "137\n"));
    }
    let least = run(ExecOptions::new().memory_limit(1)).await.unwrap_err();
    assert_eq!(least.code().as_str(), "invalid_argument");
    assert_eq!(
        out(&vm, "head -c 50000000 /dev/zero | tail -c 40000000 | wc -c").await,
        "40000000\n",
        "others are free"
    );
}

#[tokio::test]
async fn what_is_used_is_told_with_how_much_may_be() {
    let vm = vm_with(AgentOsConfig::new().disk_bytes(64 << 20).pids(100)).await;
    let used = async |name| used(&vm, name).await;
    let (before, limit) = used("disk_bytes").await;
    assert_eq!((limit, used("pids").await), (Some(64 << 20), (0, Some(100))));
    let (files, _) = used("disk_inodes").await;
    out(&vm, "head -c 10000000 /dev/zero > big; for i in 1 2 3; do : > f$i; done; (sleep 600 & sleep 600 &) > /dev/null")
        .await;
    let (after, _) = used("disk_bytes").await;
    assert!((10_000_000..12_000_000).contains(&(after - before)), "{before} {after}");
    assert_eq!(used("disk_inodes").await.0 - files, 4);
    assert_eq!(used("pids").await.0, 2);
    assert!(used("memory_bytes").await.0 > 100_000);
    out(&vm, "sh -c 'i=0; while [ $i -lt 300000 ]; do i=$((i + 1)); done'").await;
    let (cpu, _) = used("cpu_us").await;
    assert!(cpu > 50_000, "{cpu}");
}

/// Bytes that a shell and its commands fetched from storage, as it says itself.
const FETCHED: &str = "sed -n 's/^read_bytes: //p' /proc/$$/io";

#[tokio::test]
async fn what_is_fetched_from_storage_is_told_of_the_living_and_of_the_dead() {
    let vm = vm_with(AgentOsConfig::new()).await;
    let fetched = async || used(&vm, "io_read_bytes").await.0;
    // Past the cache, if the file system can do that; the same counts on the host, or does not.
    let read = "dd if=/usr/bin/dd of=/dev/null iflag=direct bs=4096 count=16 2> /dev/null";
    let before = fetched().await;
    let told: u64 = out(&vm, &format!("{read}; {FETCHED}")).await.trim().parse().unwrap();
    let host = Command::new("sh").args(["-c", &format!("{read}; {FETCHED}")]).output().unwrap().stdout;
    let on_host: u64 = String::from_utf8(host).unwrap().trim().parse().unwrap();
    assert!(on_host == 0 || told >= 65536, "{told} {on_host}");
    let after = fetched().await;
    assert!(after - before >= told, "{before} {after} {told}");

    let living =
        vm.spawn("sh", ["-c", &format!("{read}; echo read; read line")], SpawnOptions::new()).unwrap();
    said(&living, "read").await;
    assert!(fetched().await - after >= on_host.min(65536));
}

#[tokio::test]
async fn each_limit_that_is_nearly_met_is_warned_of() {
    let config = || AgentOsConfig::new().pids(20).disk_bytes(16 << 20).disk_inodes(1000);
    let vm = vm_with(config()).await;
    let vm = if missing(&vm, "memory_bytes").is_none() {
        vm_with(config().memory_bytes(64 << 20)).await
    } else {
        vm
    };
    let (sender, mut warned) = tokio::sync::mpsc::unbounded_channel();
    vm.on_limit_warning(move |warning| sender.send(warning).unwrap()).detach();
    let mut next = async |limit: &str| {
        let warning = within(warned.recv()).await.unwrap();
        assert_eq!(warning.limit, limit);
        assert!((80..=100).contains(&warning.fill_percent), "{warning:?}");
        assert!(warning.observed <= warning.capacity, "{warning:?}");
    };
    out(&vm, "head -c 14000000 /dev/zero > big").await;
    next("disk_bytes").await;
    out(&vm, "rm big; i=0; while [ $i -lt 850 ]; do : > f$i; i=$((i + 1)); done").await;
    next("disk_inodes").await;
    let sleepers =
        spawn(&vm, "rm f*; for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17; do sleep 600 & done; wait");
    next("pids").await;
    sleepers.kill();
    within(sleepers.wait()).await.unwrap();
    // The dead count until init has collected them, and the next ones need room.
    until("the dead are collected", DEADLINE, || async { used(&vm, "pids").await.0 == 0 }).await;
    if missing(&vm, "memory_bytes").is_none() {
        // `dd` fills one buffer of exactly that size and keeps it, since nobody takes what it writes.
        let hog = spawn(&vm, "dd if=/dev/zero bs=57000000 count=1 | sleep 600");
        next("memory_bytes").await;
        hog.kill();
    }
}
