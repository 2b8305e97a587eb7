//! Many at once, and many one after another: nothing is mixed up, nothing is left.

use std::{
    collections::HashSet,
    fs,
    time::{Duration, Instant},
};

use agentvm_sdk::{AgentOs, ExecOptions, SpawnOptions};

use crate::support::{all_gone, inits, no_process_has_argument, out, tree, until, vm, within, within_limit};

/// Parallel calls are many at once on a machine that may have two processors.
const PATIENCE: Duration = Duration::from_secs(120);

async fn two_hundred_at_once(vm: &AgentOs, round: u32) {
    let mut runs = tokio::task::JoinSet::new();
    for n in 0..200 {
        let vm = vm.clone();
        runs.spawn(async move {
            let command = format!("sleep 0.0{}; echo o{round}-{n}; echo e{round}-{n} >&2; exit {n}", n % 10);
            (n, within_limit(PATIENCE, vm.exec(&command, ExecOptions::new())).await.unwrap())
        });
    }
    while let Some(run) = runs.join_next().await {
        let (n, result) = run.unwrap();
        assert_eq!(
            (result.stdout, result.stderr, result.exit_code),
            (format!("o{round}-{n}\n"), format!("e{round}-{n}\n"), n)
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn c74_two_hundred_execs_at_once_each_get_their_own_results_twenty_times_in_a_row() {
    let vm = vm().await;
    for round in 0..20 {
        two_hundred_at_once(&vm, round).await;
    }
}

#[tokio::test]
async fn c74_so_they_do_on_one_thread() {
    two_hundred_at_once(&vm().await, 0).await;
}

/// How many descriptors a process has.
fn descriptors(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count)
}

/// Processes of a tree that wait for their parent to notice that they have ended.
fn zombies(root: u32) -> Vec<u32> {
    let is_zombie = |pid: &u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('Z'))
    };
    tree(root).into_iter().filter(is_zombie).collect()
}

#[tokio::test]
async fn after_a_thousand_spawns_no_descriptor_and_no_zombie_is_left() {
    let vm = vm().await;
    let sidecar = vm.sidecar().pid().unwrap();
    out(&vm, "true").await;
    let everything = tree(sidecar);
    let count = || everything.iter().map(|pid| (*pid, descriptors(*pid))).collect::<Vec<_>>();
    // Init has a spare child, and a socket to it, for a moment after a start.
    let idle = async || {
        until("the spare is given up", Duration::from_secs(10), || async { tree(sidecar).len() <= 3 }).await;
    };
    idle().await;
    let before = count();
    for _ in 0..1000 {
        let process = vm.spawn("true", [""; 0], SpawnOptions::new()).unwrap();
        assert_eq!(within(process.wait()).await.unwrap().code, 0);
    }
    assert!(zombies(sidecar).is_empty());
    idle().await;
    until("all descriptors are closed again", Duration::from_secs(1), || async {
        count().iter().zip(&before).all(|(now, before)| now.1 <= before.1)
    })
    .await;
    assert!(zombies(sidecar).is_empty());
}

#[tokio::test]
async fn c43_cancelled_calls_leave_nothing_though_nobody_calls_again() {
    let vm = vm().await;
    let sidecar = vm.sidecar().pid().unwrap();
    for _ in 0..20 {
        let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
        let options = ExecOptions::new().on_stdout(move |_| tell.send(()).unwrap());
        let exec = vm.exec("echo up; sleep 4741", options);
        tokio::select! {
            result = exec => panic!("{result:?}"),
            up = within(told.recv()) => up.unwrap(),
        }
    }
    // Seen from outside: no call is made.
    until("only sidecar, zygote and init are left", Duration::from_secs(5), || async {
        tree(sidecar).len() == 3
    })
    .await;
    no_process_has_argument(&vm, "4741").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn c44_five_hundred_orphans_are_reaped_and_every_code_stays_right() {
    let vm = vm().await;
    let mut runs = tokio::task::JoinSet::new();
    for _ in 0..50 {
        let vm = vm.clone();
        runs.spawn(async move {
            for _ in 0..10 {
                let run = vm.exec("(sleep 0.1 &) ; exit 7", ExecOptions::new());
                assert_eq!(within_limit(PATIENCE, run).await.unwrap().exit_code, 7);
            }
        });
    }
    while let Some(run) = runs.join_next().await {
        run.unwrap();
    }
    until("init alone is left", Duration::from_secs(5), || async {
        within(vm.all_processes()).await.unwrap().len() == 1
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn c62_what_was_written_just_now_can_be_executed_at_once() {
    let vm = vm().await;
    let mut workers = tokio::task::JoinSet::new();
    for worker in 0..8 {
        let vm = vm.clone();
        workers.spawn(async move {
            for round in 0..100 {
                let path = format!("/workspace/{worker}-{round}");
                let write = format!("cat > {path}; chmod +x {path}");
                let options = ExecOptions::new().stdin("#!/bin/sh\nrm \"$0\"\n");
                assert_eq!(within_limit(PATIENCE, vm.exec(&write, options)).await.unwrap().exit_code, 0);
                let run = vm.exec_argv(&path, [""; 0], ExecOptions::new());
                assert_eq!(within_limit(PATIENCE, run).await.unwrap().exit_code, 0, "{path}");
            }
        });
    }
    while let Some(worker) = workers.join_next().await {
        worker.unwrap();
    }
    assert_eq!(out(&vm, "ls /workspace").await, "");
}

#[tokio::test]
async fn c73_a_long_call_and_a_flood_hold_up_nobody_else() {
    let vm = vm().await;
    let second = Duration::from_secs(1);
    let flood = vm.exec("cat /dev/zero", ExecOptions::new().capture_stdio(false).on_stdout(|_| {}));
    let sleeper = vm.exec("sleep 600", ExecOptions::new());
    let others = async {
        for _ in 0..20 {
            let quick = within_limit(second, vm.exec("echo quick", ExecOptions::new())).await.unwrap();
            assert_eq!(quick.stdout, "quick\n");
            assert!(within_limit(second, vm.all_processes()).await.unwrap().len() >= 3);
            let process = vm.spawn("cat", [""; 0], SpawnOptions::new()).unwrap();
            process.write_stdin("x").unwrap();
            assert!(within_limit(second, process.stdout().next()).await.is_some());
            process.kill();
            assert_eq!(within_limit(second, process.wait()).await.unwrap().code, 137);
        }
    };
    tokio::select! {
        result = flood => panic!("{result:?}"),
        result = sleeper => panic!("{result:?}"),
        () = others => {}
    }
}

#[tokio::test]
async fn c49_dispose_with_thousands_of_calls_behind_it_leaves_nothing() {
    let vm = vm().await;
    for _ in 0..200 {
        vm.spawn("sleep", ["600"], SpawnOptions::new()).unwrap();
    }
    out(&vm, "true").await;
    let guests: HashSet<u32> = inits(vm.sidecar().pid().unwrap()).into_iter().flat_map(tree).collect();
    assert!(guests.len() > 200, "{}", guests.len());
    let begun = Instant::now();
    within(vm.dispose()).await.unwrap();
    all_gone(&guests, Duration::from_secs(1)).await;
    assert!(vm.list_processes().iter().all(|process| !process.running), "{:?}", begun.elapsed());
}
