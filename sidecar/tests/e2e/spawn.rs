//! `spawn`: starting, following, signalling, waiting.

use std::{
    sync::{Arc, Mutex, mpsc},
    time::Duration,
};

use agentvm_sdk::{ClientError, Process, SpawnOptions, wire::error::Code};

use crate::support::{DEADLINE, out, said, spawn, stdout, until, vm, within, within_limit};

#[tokio::test]
async fn d1_the_code_of_a_fast_exit_is_kept_though_nobody_is_subscribed() {
    let vm = vm().await;
    let process = spawn(&vm, "exit 5");
    until("it has exited", DEADLINE, || async { !vm.get_process(process.pid()).unwrap().running }).await;
    assert_eq!(within(vm.wait_process(process.pid())).await.unwrap(), 5);
    assert_eq!(within(vm.wait_process(process.pid())).await.unwrap(), 5, "and kept for every later wait");
    assert_eq!(vm.get_process(process.pid()).unwrap().exit_code, Some(5));
}

#[tokio::test]
async fn c04_a_subscriber_that_comes_after_the_end_gets_output_and_exit() {
    let vm = vm().await;
    let process = spawn(&vm, "echo gone; exit 3");
    assert_eq!(within(process.wait()).await.unwrap().code, 3);
    assert_eq!(stdout(&process).await, "gone\n");
    let (sender, exits) = mpsc::channel();
    let handler =
        move |outcome: Result<agentvm_sdk::ExitStatus, _>| sender.send(outcome.unwrap().code).unwrap();
    let subscription = vm.on_process_exit(process.pid(), handler).unwrap();
    assert_eq!(exits.recv_timeout(DEADLINE), Ok(3));
    assert!(exits.recv_timeout(DEADLINE).is_err(), "once, and then the handler is gone");
    drop(subscription);
}

#[tokio::test]
async fn pids_begin_at_a_million_and_the_list_keeps_spawn_order() {
    let vm = vm().await;
    let processes: Vec<Process> = (0..20).map(|n| spawn(&vm, &format!("exit {n}"))).collect();
    for process in &processes {
        within(process.wait()).await.unwrap();
    }
    let list = vm.list_processes();
    assert_eq!(
        list.iter().map(|info| info.pid).collect::<Vec<_>>(),
        (1_000_000..1_000_020).collect::<Vec<_>>()
    );
    assert_eq!(
        list.iter().map(|info| info.exit_code).collect::<Vec<_>>(),
        (0..20).map(Some).collect::<Vec<_>>()
    );
}

#[tokio::test]
async fn d3_d4_what_follows_a_spawn_at_once_reaches_it_in_order() {
    let vm = vm().await;
    for _ in 0..20 {
        let process = vm.spawn("cat", [""; 0], SpawnOptions::new()).unwrap();
        for n in 0..100 {
            process.write_stdin(format!("{n}\n")).unwrap();
        }
        process.close_stdin();
        let expected: String = (0..100).map(|n| format!("{n}\n")).collect();
        assert_eq!(stdout(&process).await, expected);
        assert_eq!(within(process.wait()).await.unwrap().code, 0);
    }
    let process = vm.spawn("sleep", ["600"], SpawnOptions::new()).unwrap();
    process.kill();
    let status = within(process.wait()).await.unwrap();
    assert_eq!((status.code, status.signal.as_deref()), (137, Some("SIGKILL")));
}

#[tokio::test]
async fn d8_a_program_that_cannot_start_is_a_typed_error_everywhere() {
    let vm = vm().await;
    let process = vm.spawn("no-such-cmd-zz", [""; 0], SpawnOptions::new()).unwrap();
    let error = within(process.wait()).await.unwrap_err();
    let ClientError::SpawnFailed { code, message, .. } = &error else { panic!("{error:?}") };
    assert_eq!(code, &Code::from("ENOENT"));
    assert!(message.contains("no-such-cmd-zz"), "{message}");
    let stderr = within(process.stderr().collect()).await.unwrap();
    assert_eq!(String::from_utf8(stderr).unwrap(), format!("{message}\n"));
    let info = vm.get_process(process.pid()).unwrap();
    assert_eq!((info.running, info.exit_code), (false, None));
    assert_eq!(info.failure.as_deref(), Some(message.as_str()));
    let table = within(vm.all_processes()).await.unwrap();
    assert!(!table.iter().any(|row| row.pid == process.pid()), "nothing of it is in the table");
}

#[tokio::test]
async fn d10_streams_end_while_the_registry_still_holds_the_process() {
    let vm = vm().await;
    let process = spawn(&vm, "echo a; echo b >&2");
    assert_eq!(stdout(&process).await, "a\n");
    assert_eq!(within(process.stderr().collect()).await.unwrap(), b"b\n");
    assert_eq!(vm.list_processes().len(), 1);
}

#[tokio::test]
async fn c05_the_end_of_the_streams_is_not_the_end_of_the_process() {
    let vm = vm().await;
    let process = spawn(&vm, "exec >&- 2>&-; read line; exit 5");
    assert_eq!(stdout(&process).await, "");
    assert!(vm.get_process(process.pid()).unwrap().running);
    process.write_stdin("go\n").unwrap();
    assert_eq!(within(process.wait()).await.unwrap().code, 5);
}

#[tokio::test]
async fn d11_wait_resolves_only_after_all_output_has_reached_every_callback() {
    let vm = vm().await;
    for _ in 0..20 {
        let seen = Arc::new(Mutex::new(0));
        let counter = seen.clone();
        let options = SpawnOptions::new().on_stdout(move |bytes| *counter.lock().unwrap() += bytes.len());
        let process = vm.spawn("head", ["-c", "300000", "/dev/zero"], options).unwrap();
        assert_eq!(within(process.wait()).await.unwrap().code, 0);
        assert_eq!(*seen.lock().unwrap(), 300_000);
    }
}

#[tokio::test]
async fn a_descendant_that_floods_the_output_delays_no_wait() {
    let vm = vm().await;
    let process = spawn(&vm, "yes & echo $! >&2; exit 4");
    assert_eq!(within_limit(Duration::from_secs(5), process.wait()).await.unwrap().code, 4);
    let stderr = within(process.stderr().until_exit().collect()).await.unwrap();
    let pid = String::from_utf8(stderr).unwrap();
    out(&vm, &format!("kill -0 {pid}")).await;
}

#[tokio::test]
async fn c17_stop_is_a_sigterm_that_the_program_may_handle() {
    let vm = vm().await;
    let plain = spawn(&vm, "echo up; sleep 60; :");
    said(&plain, "up").await;
    plain.stop();
    let status = within(plain.wait()).await.unwrap();
    assert_eq!((status.code, status.signal.as_deref()), (143, Some("SIGTERM")));

    let handled = spawn(&vm, "trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.01; done");
    said(&handled, "up").await;
    handled.stop();
    let status = within(handled.wait()).await.unwrap();
    assert_eq!((status.code, status.signal), (0, None));
    assert_eq!(stdout(&handled).await, "up\nbye\n");
}

#[tokio::test]
async fn kill_reaches_every_descendant_whatever_it_did_to_get_away() {
    let vm = vm().await;
    let script = "setsid sh -c 'setsid sleep 4713 & sleep 4713' & \
                  (trap '' TERM HUP INT; (sleep 4713 & sleep 4713) & sleep 4713) & \
                  sh -c 'kill -STOP $$' & \
                  sleep 0.05; echo up; sleep 4713";
    let bystander = vm.spawn("sleep", ["4714"], SpawnOptions::new()).unwrap();
    let process = spawn(&vm, script);
    said(&process, "up").await;
    process.kill();
    let status = within(process.wait()).await.unwrap();
    assert_eq!((status.code, status.signal.as_deref()), (137, Some("SIGKILL")));
    until("the whole tree is gone", Duration::from_secs(5), || async {
        let table = within(vm.all_processes()).await.unwrap();
        !table.iter().any(|row| row.exit_code.is_none() && row.args.iter().any(|arg| arg.contains("4713")))
    })
    .await;
    assert!(vm.get_process(bystander.pid()).unwrap().running, "another process was hit");
}

#[tokio::test]
async fn signals_after_the_end_are_no_ops() {
    let vm = vm().await;
    let process = spawn(&vm, "exit 6");
    within(process.wait()).await.unwrap();
    process.stop();
    process.kill();
    assert_eq!(within(process.wait()).await.unwrap().code, 6);
    let unknown = vm.kill_process(99).unwrap_err();
    assert_eq!(unknown.to_string(), "Process not found: 99");
}

#[tokio::test]
async fn d21_the_start_time_is_the_start_and_not_the_first_look() {
    let vm = vm().await;
    let before = out(&vm, "date +%s%3N").await.trim().parse::<u64>().unwrap();
    let process = spawn(&vm, "date +%s%3N; exec sleep 600");
    let mut stream = process.stdout();
    let Some(Ok(agentvm_sdk::Output::Data(bytes))) = within(stream.next()).await else { panic!("no time") };
    let begun: u64 = String::from_utf8(bytes.to_vec()).unwrap().trim().parse().unwrap();
    let later = spawn(&vm, "exit 0");
    within(later.wait()).await.unwrap();
    let started = vm.get_process(process.pid()).unwrap().started_at_ms;
    assert!((before..=begun).contains(&started), "{before} <= {started} <= {begun}");
    let row =
        within(vm.all_processes()).await.unwrap().into_iter().find(|row| row.pid == process.pid()).unwrap();
    assert_eq!(row.start_time_ms, started, "the table and the registry agree");
}

#[test]
fn d25_everything_sync_works_on_a_thread_without_a_runtime() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let vm = runtime.block_on(vm());
    let (sender, exits) = mpsc::channel();
    let (chunks, output) = mpsc::channel();
    let options = SpawnOptions::new().on_stdout(move |bytes| chunks.send(bytes.to_vec()).unwrap());
    let process = vm.spawn("cat", [""; 0], options).unwrap();
    let subscription =
        vm.on_process_exit(process.pid(), move |outcome| sender.send(outcome).unwrap()).unwrap();
    vm.write_process_stdin(process.pid(), "hello").unwrap();
    vm.close_process_stdin(process.pid()).unwrap();
    assert_eq!(output.recv_timeout(DEADLINE).unwrap(), b"hello");
    assert_eq!(exits.recv_timeout(DEADLINE).unwrap().unwrap().code, 0);
    drop(subscription);
    let endless = vm.spawn("sleep", ["600"], SpawnOptions::new()).unwrap();
    endless.kill();
    drop(vm);
}

#[tokio::test]
async fn d25_a_panicking_callback_takes_nobody_with_it() {
    let vm = vm().await;
    let options = SpawnOptions::new().on_stdout(|_| panic!("a callback that misbehaves"));
    let bad = vm.spawn("seq", ["1", "100000"], options).unwrap();
    assert_eq!(within(bad.wait()).await.unwrap().code, 0);
    let subscription = vm.on_process_exit(bad.pid(), |_| panic!("so does a handler")).unwrap();
    assert_eq!(out(&vm, "echo fine").await, "fine\n");
    drop(subscription);
}
