//! Many at once, and many one after the other.

use std::{collections::HashSet, time::Duration};

use agentvm_sdk::{AgentOs, ExecOptions, ProcessStatus, SpawnOptions};
use tokio::task::JoinSet;

use crate::support::{
    DEADLINE, OPENED_ONCE, descriptors, is_alive, out, tree, until, vm, within, within_limit,
};

const SECOND: Duration = Duration::from_secs(1);

async fn only_init_is_left(vm: &AgentOs) {
    until("only init is left", DEADLINE, || async {
        let table = within(vm.all_processes()).await.unwrap();
        table.iter().filter(|row| row.status != ProcessStatus::Exited).count() == 1
    })
    .await;
}

async fn two_hundred_at_once(vm: &AgentOs) {
    let mut runs = JoinSet::new();
    for n in 0..200 {
        let vm = vm.clone();
        runs.spawn(async move {
            let command = format!("sleep 0.0{}; echo o{n}; echo e{n} >&2; exit {n}", n % 10);
            (n, within(vm.exec(&command, ExecOptions::new())).await.unwrap())
        });
    }
    while let Some(run) = runs.join_next().await {
        let (n, result) = run.unwrap();
        let got = (&*result.stdout, &*result.stderr, result.exit_code);
        assert_eq!(got, (&*format!("o{n}\n"), &*format!("e{n}\n"), n));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn c74_two_hundred_execs_at_once_each_get_their_own_results_five_times_in_a_row() {
    let vm = vm().await;
    for _ in 0..5 {
        two_hundred_at_once(&vm).await;
    }
    only_init_is_left(&vm).await;
}

#[tokio::test]
async fn c74_on_one_thread_as_well() {
    let vm = vm().await;
    two_hundred_at_once(&vm).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_spawns_leave_no_descriptor_and_no_zombie() {
    let vm = vm().await;
    let sidecar = vm.sidecar().pid().unwrap();
    out(&vm, "true").await;
    within(vm.all_processes()).await.unwrap();
    let before = descriptors(sidecar);
    for _ in 0..10 {
        let spawned: Vec<_> =
            (0..100).map(|_| vm.spawn("true", [""; 0], SpawnOptions::new()).unwrap()).collect();
        for process in spawned {
            assert_eq!(within(process.wait()).await.unwrap().code, 0);
        }
    }
    let as_before = || async { descriptors(sidecar) <= before + OPENED_ONCE };
    until("the sidecar's descriptors are as before", SECOND, as_before).await;
    only_init_is_left(&vm).await;
}

#[tokio::test]
async fn c43_cancelled_execs_leave_nothing_defunct() {
    let vm = vm().await;
    for _ in 0..20 {
        let (sender, mut up) = tokio::sync::mpsc::unbounded_channel();
        let options = ExecOptions::new().on_stdout(move |bytes| drop(sender.send(bytes.to_vec())));
        tokio::select! {
            result = vm.exec("echo up; sleep 60", options) => panic!("{result:?}"),
            _ = up.recv() => {}
        }
    }
    only_init_is_left(&vm).await;
}

#[tokio::test]
async fn c49_dispose_settles_every_wait_and_nothing_revives_the_vm() {
    let vm = vm().await;
    let process = vm.spawn("sleep", ["600"], SpawnOptions::new()).unwrap();
    out(&vm, "true").await;
    let pids: HashSet<u32> = tree(vm.sidecar().pid().unwrap());
    let (waited, ()) =
        within(async { tokio::join!(process.wait(), async { vm.dispose().await.unwrap() }) }).await;
    assert_eq!(waited.unwrap_err().to_string(), "VM is disposed");
    within(vm.dispose()).await.unwrap();
    let later = within(vm.exec("true", ExecOptions::new())).await.unwrap_err();
    assert_eq!(later.to_string(), "VM is disposed");
    let stream = within(process.stdout().next()).await;
    assert_eq!(stream, Some(Err(agentvm_sdk::StreamLost)));
    drop(vm);
    until("the sidecar is gone", DEADLINE, || async { !pids.iter().any(|pid| is_alive(*pid)) }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn c62_a_program_just_written_runs_while_others_are_started() {
    const ROUNDS: u32 = 50;
    let vm = vm().await;
    let mut workers = JoinSet::new();
    for worker in 0..8 {
        let vm = vm.clone();
        workers.spawn(async move {
            for round in 0..ROUNDS {
                let path = format!("/workspace/w{worker}-{round}");
                let write = format!("printf '#!/bin/sh\\nexit 0\\n' > {path}; chmod 755 {path}");
                assert_eq!(within(vm.exec(&write, ExecOptions::new())).await.unwrap().exit_code, 0);
                let process = vm.spawn(&path, [""; 0], SpawnOptions::new()).unwrap();
                assert_eq!(within(process.wait()).await.unwrap().code, 0, "{path}");
                within(vm.exec_argv("rm", [path], ExecOptions::new())).await.unwrap();
            }
        });
    }
    while let Some(worker) = workers.join_next().await {
        worker.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn c73_a_long_command_and_a_flood_block_no_other_call() {
    let vm = vm().await;
    let bytes = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
    let counter = bytes.clone();
    let count = move |chunk: &[u8]| {
        counter.fetch_add(chunk.len() as u64, std::sync::atomic::Ordering::Relaxed);
    };
    let mut long = JoinSet::new();
    let (sleeper, flooder) = (vm.clone(), vm.clone());
    long.spawn(async move { sleeper.exec("sleep 600", ExecOptions::new()).await.map(|_| ()) });
    let options = ExecOptions::new().capture_stdio(false).on_stdout(count);
    long.spawn(async move { flooder.exec("cat /dev/zero", options).await.map(|_| ()) });
    let cat = vm.spawn("cat", [""; 0], SpawnOptions::new()).unwrap();
    for round in 0..20 {
        let line = format!("line {round}\n");
        let quick = within_limit(10 * SECOND, vm.exec("echo quick", ExecOptions::new())).await.unwrap();
        assert_eq!(quick.stdout, "quick\n");
        within_limit(10 * SECOND, vm.all_processes()).await.unwrap();
        assert!(vm.list_processes().len() == 1 + round);
        cat.write_stdin(line).unwrap();
        let victim = vm.spawn("sleep", ["600"], SpawnOptions::new()).unwrap();
        victim.kill();
        assert_eq!(within_limit(10 * SECOND, victim.wait()).await.unwrap().code, 137);
    }
    cat.close_stdin();
    let lines = String::from_utf8(within(cat.stdout().collect()).await.unwrap()).unwrap();
    assert!(lines.lines().eq((0..20).map(|round| format!("line {round}"))), "{lines}");
    assert!(bytes.load(std::sync::atomic::Ordering::Relaxed) > 0);
    assert_eq!(long.len(), 2, "both still run");
}
