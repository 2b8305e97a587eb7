//! The process table and the forest.

use std::collections::HashSet;

use agentvm_sdk::{Output, ProcessStatus, ProcessTreeNode, SpawnOptions};

use crate::support::{DEADLINE, out, said, until, vm, within};

#[tokio::test]
async fn d2_a_spawned_process_has_one_row_and_its_children_hang_under_it() {
    let vm = vm().await;
    let process =
        vm.spawn("sh", ["-c", "sleep 600 & sleep 601 & echo up; wait"], SpawnOptions::new()).unwrap();
    let mut stream = process.stdout();
    assert_eq!(within(stream.next()).await, Some(Ok(Output::Data("up\n".into()))));
    until("both sleep", DEADLINE, || async {
        let table = within(vm.all_processes()).await.unwrap();
        table.iter().filter(|row| row.command == "sleep").count() == 2
    })
    .await;
    let table = within(vm.all_processes()).await.unwrap();
    let pids: HashSet<u32> = table.iter().map(|row| row.pid).collect();
    assert_eq!(pids.len(), table.len(), "one row each: {table:#?}");
    let shell = table.iter().find(|row| row.pid == process.pid()).unwrap();
    assert_eq!((shell.ppid, shell.pgid, shell.sid), (1, process.pid(), process.pid()));
    assert_eq!(shell.args, ["sh", "-c", "sleep 600 & sleep 601 & echo up; wait"]);
    assert_eq!((shell.cwd.as_str(), shell.status), ("/workspace", ProcessStatus::Running));
    for sleep in table.iter().filter(|row| row.command == "sleep") {
        assert_eq!((sleep.ppid, sleep.pgid, sleep.sid), (process.pid(), process.pid(), process.pid()));
        assert!(sleep.pid < 1_000_000);
    }
    let init = table.iter().find(|row| row.pid == 1).unwrap();
    assert_eq!((init.ppid, init.args.as_slice()), (0, ["agentvm-init".to_owned()].as_slice()));

    let forest = within(vm.process_tree()).await.unwrap();
    let root = forest.iter().find(|node| node.info.pid == 1).unwrap();
    let shell = root.children.iter().find(|node| node.info.pid == process.pid()).unwrap();
    assert_eq!(shell.children.len(), 2);
    assert_eq!(count(&forest), table.len());
}

fn count(forest: &[ProcessTreeNode]) -> usize {
    forest.iter().map(|node| 1 + count(&node.children)).sum()
}

#[tokio::test]
async fn an_exited_process_stays_in_the_table_with_its_code_and_times() {
    let vm = vm().await;
    let process = vm.spawn("sh", ["-c", "exit 9"], SpawnOptions::new()).unwrap();
    within(process.wait()).await.unwrap();
    let table = within(vm.all_processes()).await.unwrap();
    let rows: Vec<_> = table.iter().filter(|row| row.pid == process.pid()).collect();
    assert_eq!(rows.len(), 1, "{table:#?}");
    assert_eq!((rows[0].status, rows[0].exit_code), (ProcessStatus::Exited, Some(9)));
    assert!(rows[0].exit_time_ms.unwrap() >= rows[0].start_time_ms);
}

#[tokio::test]
async fn c64_odd_program_names_shift_no_field() {
    let vm = vm().await;
    out(&vm, "cp /bin/sleep '/tmp/x (y) z'; cp /bin/sleep '/tmp/a) S 1 ('").await;
    let names = ["x (y) z", "a) S 1 ("];
    let processes: Vec<_> = names
        .iter()
        .map(|name| vm.spawn(&format!("/tmp/{name}"), ["600"], SpawnOptions::new()).unwrap())
        .collect();
    until("both run under their names", DEADLINE, || async {
        let table = within(vm.all_processes()).await.unwrap();
        processes
            .iter()
            .zip(names)
            .all(|(process, name)| table.iter().any(|row| row.pid == process.pid() && row.command == name))
    })
    .await;
    let table = within(vm.all_processes()).await.unwrap();
    for process in &processes {
        let row = table.iter().find(|row| row.pid == process.pid()).unwrap();
        assert_eq!((row.ppid, row.pgid, row.status), (1, process.pid(), ProcessStatus::Running));
    }
}

#[tokio::test]
async fn c65_arguments_are_listed_exactly() {
    let vm = vm().await;
    let args = ["-c", "sleep 600; :", "u\nv", "", "w x"];
    let process = vm.spawn("sh", args, SpawnOptions::new()).unwrap();
    until("it runs", DEADLINE, || async {
        let table = within(vm.all_processes()).await.unwrap();
        table.iter().any(|row| row.pid == process.pid())
    })
    .await;
    let table = within(vm.all_processes()).await.unwrap();
    let row = table.iter().find(|row| row.pid == process.pid()).unwrap();
    assert_eq!(row.args, ["sh", "-c", "sleep 600; :", "u\nv", "", "w x"]);
}

#[tokio::test]
async fn stopped_and_zombie_processes_are_shown_as_such() {
    let vm = vm().await;
    let script = "kill -STOP $$; exit 0";
    let stopped = vm.spawn("sh", ["-c", script], SpawnOptions::new()).unwrap();
    // A parent that never waits: python forks, the child ends, the parent sleeps.
    let script = "import os,time\nif os.fork() == 0: os._exit(0)\ntime.sleep(600)";
    let parent = vm.spawn("python3", ["-c", script], SpawnOptions::new()).unwrap();
    until("one stopped, one zombie", DEADLINE, || async {
        let table = within(vm.all_processes()).await.unwrap();
        let is_stopped =
            table.iter().any(|row| row.pid == stopped.pid() && row.status == ProcessStatus::Stopped);
        let has_zombie =
            table.iter().any(|row| row.ppid == parent.pid() && row.status == ProcessStatus::Zombie);
        is_stopped && has_zombie
    })
    .await;
}

#[tokio::test]
async fn a_table_of_many_pages_is_read_whole() {
    let vm = vm().await;
    let long = "x".repeat(60_000);
    let processes: Vec<_> = (0..40)
        .map(|_| vm.spawn("sh", ["-c", "read line", "_", &long], SpawnOptions::new()).unwrap())
        .collect();
    until("all are listed", DEADLINE, || async {
        let table = within(vm.all_processes()).await.unwrap();
        processes.iter().all(|process| table.iter().filter(|row| row.pid == process.pid()).count() == 1)
    })
    .await;
}

#[tokio::test]
async fn many_may_ask_for_the_table_at_once() {
    let vm = vm().await;
    let mut asking = tokio::task::JoinSet::new();
    for _ in 0..64 {
        let vm = vm.clone();
        asking.spawn(async move { within(vm.all_processes()).await.map(|table| table.len()) });
    }
    while let Some(asked) = asking.join_next().await {
        assert_eq!(asked.unwrap().unwrap(), 1);
    }
}

#[tokio::test]
async fn e68_the_arguments_of_an_exited_process_are_cut_and_marked() {
    let vm = vm().await;
    let long = vec!["x".repeat(100_000); 10];
    let process = vm.spawn("true", long, SpawnOptions::new()).unwrap();
    within(process.wait()).await.unwrap();
    let table = within(vm.all_processes()).await.unwrap();
    let row = table.iter().find(|row| row.pid == process.pid()).unwrap();
    let bytes: usize = row.args.iter().map(|arg| arg.len() + 1).sum();
    assert!(row.args_truncated && bytes <= (64 << 10) + 1, "{bytes}");
}

#[tokio::test]
async fn e68_a_large_table_comes_page_by_page_and_whole() {
    let vm = vm().await;
    out(&vm, "mkfifo /workspace/never").await;
    // A shell's children that execute nothing have its arguments.
    let script =
        "i=0; while [ $i -lt 400 ]; do (read x < /workspace/never) & i=$((i+1)); done; echo up; wait";
    let process = vm.spawn("sh", ["-c", script, &"x".repeat(100_000)], SpawnOptions::new()).unwrap();
    let mut stream = process.stdout();
    assert_eq!(within(stream.next()).await, Some(Ok(Output::Data("up\n".into()))));
    let table = within(vm.all_processes()).await.unwrap();
    let cut = table.iter().filter(|row| row.args_truncated).count();
    assert_eq!((table.len(), cut), (402, 401));
}

#[tokio::test]
async fn what_was_spawned_before_is_in_the_table_under_its_pid_whenever_that_is_asked_for() {
    let vm = vm().await;
    for _ in 0..50 {
        let process = vm.spawn("sleep", ["600"], SpawnOptions::new()).unwrap();
        let table = within(vm.all_processes()).await.unwrap();
        let rows: Vec<_> = table.iter().filter(|row| row.pid == process.pid()).collect();
        assert_eq!(rows.len(), 1, "{table:#?}");
        assert_eq!((&*rows[0].command, &rows[0].args[..]), ("sleep", &["sleep".into(), "600".into()][..]));
        process.kill();
    }
}

/// Started and ended all the time, a process is seen while it starts, runs, ends and has ended: never twice.
#[tokio::test]
async fn d2_a_process_that_ends_while_the_table_is_read_has_one_row() {
    let vm = vm().await;
    let churn = async {
        for _ in 0..300 {
            let process = vm.spawn("true", ["unique"], SpawnOptions::new()).unwrap();
            within(process.wait()).await.unwrap();
        }
    };
    let look = async {
        loop {
            let table = within(vm.all_processes()).await.unwrap();
            let spawned = table.iter().filter(|row| row.args.get(1).is_some_and(|arg| arg == "unique"));
            for row in spawned {
                assert!(row.pid >= 1_000_000, "shown by a pid that is not its own: {row:?}");
                assert_eq!((row.ppid, row.pgid, row.sid), (1, row.pid, row.pid), "{row:?}");
            }
            let pids: HashSet<u32> = table.iter().map(|row| row.pid).collect();
            assert_eq!(pids.len(), table.len(), "{table:#?}");
        }
    };
    tokio::select! {
        () = churn => {}
        () = look => {}
    }
    let table = within(vm.all_processes()).await.unwrap();
    assert_eq!(table.len(), 257, "init and the last 256");
    assert!(table.iter().skip(1).map(|row| row.pid).eq(1_000_044..1_000_300));
}

#[tokio::test]
async fn a_process_whose_main_thread_has_ended_is_no_zombie() {
    let vm = vm().await;
    let script = "import ctypes, os, threading, time\n\
                  def live():\n\
                  \x20   while ') Z ' not in open(f'/proc/self/task/{os.getpid()}/stat').read(): time.sleep(.001)\n\
                  \x20   print('up', flush=True)\n\
                  \x20   time.sleep(600)\n\
                  threading.Thread(target=live).start()\n\
                  ctypes.CDLL(None).syscall(60 if os.uname().machine == 'x86_64' else 93, 0)";
    let process = vm.spawn("python3", ["-c", script, "a b"], SpawnOptions::new()).unwrap();
    said(&process, "up").await;
    let table = within(vm.all_processes()).await.unwrap();
    let row = table.iter().find(|row| row.pid == process.pid()).unwrap();
    assert_eq!(row.status, ProcessStatus::Running);
    assert_eq!((row.args[3].as_str(), row.cwd.as_str()), ("a b", "/workspace"));
    assert!(vm.get_process(process.pid()).unwrap().running);
    assert_eq!(within(vm.read_process_cmdline(process.pid())).await.unwrap().len(), 4);
    assert!(!within(vm.read_process_file_handles(process.pid())).await.unwrap().is_empty());
}

#[tokio::test]
async fn start_times_stay_what_they_are() {
    let vm = vm().await;
    let process = vm.spawn("sh", ["-c", "sleep 600 & echo up; wait"], SpawnOptions::new()).unwrap();
    said(&process, "up").await;
    let mut starts = HashSet::new();
    for _ in 0..50 {
        let table = within(vm.all_processes()).await.unwrap();
        starts.extend(table.iter().map(|row| (row.pid, row.start_time_ms)));
    }
    assert_eq!(starts.len(), 3, "{starts:?}");
}
