//! Callers that misbehave: whatever one does, no other process notices, and nothing is left behind.

use std::{
    future::Future,
    pin::pin,
    sync::mpsc,
    time::{Duration, Instant},
};

use agentvm_sdk::{
    AgentOs, AgentOsConfig, ExecOptions, Output, OutputFrom, OutputStream, Overflow, Process, ProcessStatus,
    Sidecar, SpawnOptions,
};
use futures_util::poll;

use crate::support::{DEADLINE, OPENED_ONCE, Random, descriptors, out, until, vm, within};

/// Polls a future so many times and drops it, unless it is done before.
async fn drop_after<T>(polls: u64, future: impl Future<Output = T>) {
    let mut future = pin!(future);
    for _ in 0..polls {
        if poll!(future.as_mut()).is_ready() {
            return;
        }
        tokio::task::yield_now().await;
    }
}

/// One of all the calls there are, given up at some point.
async fn misbehave(vm: &AgentOs, sidecar: &Sidecar, chance: &mut Random) {
    let polls = chance.below(12);
    let input = vec![b'x'; 3 << 20];
    let some = vm.list_processes();
    let pid =
        some.get(usize::try_from(chance.below(1 + some.len() as u64)).unwrap()).map_or(99, |info| info.pid);
    match chance.below(14) {
        0 => drop_after(polls, vm.exec("sleep 4720 & sleep 4720", ExecOptions::new())).await,
        1 => drop_after(polls, vm.exec("yes 4720", ExecOptions::new().on_stdout(|_| {}))).await,
        2 => drop_after(polls, vm.exec("cat", ExecOptions::new().stdin(input))).await,
        3 => drop_after(polls, vm.exec_argv("no-such-cmd-zz", [""; 0], ExecOptions::new())).await,
        4 => {
            let options = ExecOptions::new().on_stdout(|_| panic!("by design"));
            drop_after(polls, vm.exec("yes 4720", options)).await;
        }
        5 => {
            let process = vm.spawn("yes", ["4720"], SpawnOptions::new()).unwrap();
            let mut asleep = process.output_from(OutputStream::Stdout, OutputFrom::Start, Overflow::Wait);
            drop_after(polls, asleep.next()).await;
            process.kill();
        }
        6 => {
            let process = vm.spawn("sh", ["-c", "read line; echo 4720"], SpawnOptions::new()).unwrap();
            let subscription = vm.on_process_exit(process.pid(), |_| panic!("by design")).unwrap();
            process.write_stdin("go\n").unwrap();
            drop_after(polls, process.wait()).await;
            process.close_stdin();
            drop(subscription);
        }
        7 => {
            let process = vm.spawn("cat", [""; 0], SpawnOptions::new()).unwrap();
            process.write_stdin(input.clone()).unwrap();
            drop_after(polls, process.write_stdin_all(input)).await;
            process.kill();
        }
        8 => drop_after(polls, vm.all_processes()).await,
        9 => drop_after(polls, vm.process_tree()).await,
        10 => drop_after(polls, vm.wait_process(pid)).await,
        11 => drop_after(polls, vm.read_process_cmdline(pid)).await,
        12 => drop_after(polls, vm.read_process_file_handles(1)).await,
        _ => drop_after(polls, AgentOs::create(AgentOsConfig::new().connection(sidecar.clone()))).await,
    }
}

/// Gives a line to a process and gets it back.
async fn echoes(process: &Process, at: &mut u64, line: &str) {
    process.write_stdin(line.to_owned()).unwrap();
    let mut stream = process.output_from(OutputStream::Stdout, OutputFrom::Offset(*at), Overflow::DropOldest);
    let mut text = Vec::new();
    while text.len() < line.len() {
        match within(stream.next()).await {
            Some(Ok(Output::Data(bytes))) => text.extend_from_slice(&bytes),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(String::from_utf8(text).unwrap(), line);
    *at += line.len() as u64;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_calls_given_up_anywhere_disturb_nobody_and_leave_nothing() {
    const CALLERS: u64 = 4;
    const ROUNDS: u64 = 250;
    let vm = vm().await;
    let (sidecar, pid) = (vm.sidecar().clone(), vm.sidecar().pid().unwrap());
    let bystander = vm.spawn("cat", [""; 0], SpawnOptions::new()).unwrap();
    let mut at = 0;
    echoes(&bystander, &mut at, "before\n").await;
    // The first listing opens what stays open.
    within(vm.all_processes()).await.unwrap();
    let before = descriptors(pid);

    let mut callers = tokio::task::JoinSet::new();
    for caller in 1..=CALLERS {
        let (vm, sidecar) = (vm.clone(), sidecar.clone());
        callers.spawn(async move {
            let mut chance = Random(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(caller));
            for _ in 0..ROUNDS {
                misbehave(&vm, &sidecar, &mut chance).await;
            }
        });
    }
    let mut all = pin!(async {
        while let Some(caller) = callers.join_next().await {
            caller.unwrap();
        }
    });
    while poll!(all.as_mut()).is_pending() {
        echoes(&bystander, &mut at, "in between\n").await;
    }
    echoes(&bystander, &mut at, "after\n").await;
    assert_eq!(out(&vm, "echo fine").await, "fine\n");

    until("only init and the bystander are left", DEADLINE, || async {
        let table = within(vm.all_processes()).await.unwrap();
        let live = table.iter().filter(|row| row.status != ProcessStatus::Exited);
        live.map(|row| row.pid).eq([1, bystander.pid()])
    })
    .await;
    // The last of their output may still be on the way, and an exit is told behind it.
    until("only the bystander is told to run", DEADLINE, || async {
        let running = vm.list_processes().into_iter().filter(|info| info.running);
        running.map(|info| info.pid).eq([bystander.pid()])
    })
    .await;
    let as_before = || async { descriptors(pid) <= before + OPENED_ONCE };
    until("the sidecar's descriptors are as before", DEADLINE, as_before).await;
    bystander.close_stdin();
    assert_eq!(within(bystander.wait()).await.unwrap().code, 0);
}

#[tokio::test]
async fn a_callback_that_blocks_delays_only_its_own_process() {
    let vm = vm().await;
    let (called, calls) = mpsc::channel();
    let (release, held) = mpsc::channel::<()>();
    let blocking = SpawnOptions::new().on_stdout(move |_| {
        called.send(()).unwrap();
        // Until the test lets go of it.
        let _ = held.recv();
    });
    let blocked = vm.spawn("sh", ["-c", "echo one; exit 5"], blocking).unwrap();
    calls.recv_timeout(DEADLINE).unwrap();

    let other = vm.spawn("sh", ["-c", "echo two"], SpawnOptions::new().on_stdout(|_| {})).unwrap();
    assert_eq!(within(other.wait()).await.unwrap().code, 0);
    assert_eq!(out(&vm, "echo three").await, "three\n");
    within(vm.all_processes()).await.unwrap();
    assert!(vm.get_process(blocked.pid()).unwrap().running, "its exit waits for its callback");
    drop(release);
    assert_eq!(within(blocked.wait()).await.unwrap().code, 5);
}

#[tokio::test]
async fn a_hundred_streams_that_nobody_polls_hold_up_nobody_else() {
    let vm = vm().await;
    let asleep: Vec<_> = (0..100)
        .map(|_| {
            let process = vm.spawn("yes", [""; 0], SpawnOptions::new()).unwrap();
            let waiting = process.output_from(OutputStream::Stdout, OutputFrom::Start, Overflow::Wait);
            (process, waiting)
        })
        .collect();
    let begun = Instant::now();
    assert_eq!(out(&vm, "seq 1 10000 | wc -l").await, "10000\n");
    assert_eq!(within(vm.all_processes()).await.unwrap().len(), 101);
    for (process, _) in &asleep {
        process.kill();
    }
    for (process, waiting) in asleep {
        drop(waiting);
        assert_eq!(within(process.wait()).await.unwrap().code, 137);
    }
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
}
