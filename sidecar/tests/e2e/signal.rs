//! Signals, graces and what they end.

use std::time::{Duration, Instant};

use agentvm_sdk::{
    AgentOs, AgentOsConfig, ClientError, ExecOptions, ExitCause, Process, Signal, SignalTarget, SpawnOptions,
};

use crate::support::{DEADLINE, all_gone, inits, said, sh, sidecar, spawn, stdout, tree, until, vm, within};

const SECOND: Duration = Duration::from_secs(1);

/// A shell that says the name of every signal it gets, and ends on SIGTERM with status 0.
async fn listener(vm: &AgentOs) -> Process {
    let script = "for s in HUP USR1 USR2 RTMIN RTMIN+3; do trap \"echo $s\" $s; done; \
                  trap 'echo TERM; exit 0' TERM; echo up; while :; do sleep 0.01; done";
    let process = vm.spawn("bash", ["-c", script], SpawnOptions::new()).unwrap();
    said(&process, "up").await;
    process
}

#[tokio::test]
async fn every_kind_of_signal_reaches_the_process_and_the_end_tells_its_name() {
    let vm = vm().await;
    let process = listener(&vm).await;
    for name in ["HUP", "SIGUSR1", "12", "SIGRTMIN", "rtmin+3"] {
        vm.signal_process(process.pid(), name.parse().unwrap(), SignalTarget::Process).unwrap();
    }
    for line in ["HUP", "USR1", "USR2", "RTMIN", "RTMIN+3"] {
        said(&process, line).await;
    }
    process.stop();
    assert_eq!(within(process.wait()).await.unwrap().code, 0);

    for (signal, code) in [(Signal::ABRT, 134), (Signal::real_time(2).unwrap(), 164)] {
        let process = vm.spawn("sleep", ["600"], SpawnOptions::new()).unwrap();
        process.signal(signal, SignalTarget::Process);
        let status = within(vm.wait_process_status(process.pid())).await.unwrap();
        assert_eq!((status.code, status.signal), (code, Some(signal.to_string())));
        assert_eq!(status.cause, ExitCause::Signaled);
    }
    let unknown = vm.signal_process(99, Signal::HUP, SignalTarget::Tree).unwrap_err();
    assert!(matches!(unknown, ClientError::ProcessNotFound(99)), "{unknown:?}");
}

#[tokio::test]
async fn a_signal_goes_as_far_as_its_target_says() {
    let vm = vm().await;
    let family = "trap 'echo shell' USR1; \
                  sh -c 'trap \"echo group\" USR1; echo up; while :; do sleep 0.01; done' & \
                  setsid sh -c 'trap \"echo tree\" USR1; echo up; while :; do sleep 0.01; done' & \
                  while :; do wait; done";
    for (target, expected) in [
        (SignalTarget::Process, &["shell"][..]),
        (SignalTarget::Group, &["shell", "group"]),
        (SignalTarget::Tree, &["shell", "group", "tree"]),
    ] {
        let process = spawn(&vm, family);
        until("both children are up", DEADLINE, || async {
            let page = process.read_output(agentvm_sdk::OutputStream::Stdout, 0, 100);
            page.bytes.split(|byte| *byte == b'\n').count() == 3
        })
        .await;
        process.signal(Signal::USR1, target);
        for line in expected {
            said(&process, line).await;
        }
        process.kill();
        within(process.wait()).await.unwrap();
        let heard = stdout(&process).await;
        let mut lines: Vec<&str> = heard.lines().filter(|line| *line != "up").collect();
        lines.sort_unstable();
        let mut expected = expected.to_vec();
        expected.sort_unstable();
        assert_eq!(lines, expected, "{target:?}");
    }
}

#[tokio::test]
async fn c37_a_kill_hits_the_command_behind_the_shell_as_well() {
    let vm = vm().await;
    let process = spawn(&vm, "echo up; sleep 4731; true");
    said(&process, "up").await;
    process.kill();
    let status = within(process.wait()).await.unwrap();
    assert_eq!((status.code, status.signal.as_deref()), (137, Some("SIGKILL")));
    crate::support::no_process_has_argument(&vm, "4731").await;
}

#[tokio::test]
async fn c40_a_stop_with_grace_returns_when_the_process_has_ended_by_itself() {
    let vm = vm().await;
    let script = "trap 'sleep 0.3; echo bye; exit 0' TERM; echo up; while :; do sleep 0.01; done";
    let process = spawn(&vm, script);
    said(&process, "up").await;
    let begun = Instant::now();
    let status = within(vm.stop_process_with_grace(process.pid(), DEADLINE)).await.unwrap();
    assert_eq!((status.code, status.signal.as_deref()), (0, None));
    assert!(begun.elapsed() >= Duration::from_millis(300) && begun.elapsed() < DEADLINE / 2);
    assert_eq!(stdout(&process).await, "up\nbye\n");
    let again = within(process.stop_with_grace(DEADLINE)).await.unwrap();
    assert_eq!(again, status, "one that has ended tells how");
}

#[tokio::test]
async fn a_stop_with_grace_kills_the_tree_when_the_grace_is_over() {
    let vm = vm().await;
    let process = spawn(&vm, "trap '' TERM; (setsid sleep 4732 &); echo up; while :; do sleep 0.01; done");
    said(&process, "up").await;
    let grace = Duration::from_millis(200);
    let begun = Instant::now();
    let status = within(process.stop_with_grace(grace)).await.unwrap();
    assert!(begun.elapsed() >= grace);
    assert_eq!((status.code, status.cause), (137, ExitCause::Signaled));
    crate::support::no_process_has_argument(&vm, "4732").await;
}

#[tokio::test]
async fn dispose_with_grace_lets_processes_end_and_tells_how() {
    let sidecar = sidecar().await;
    let vm = within(AgentOs::create(AgentOsConfig::new().connection(sidecar.clone()))).await.unwrap();
    let polite = spawn(&vm, "trap 'echo bye; exit 7' TERM; echo up; while :; do sleep 0.01; done");
    said(&polite, "up").await;
    let guests = inits(sidecar.pid().unwrap()).into_iter().flat_map(tree).collect();
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    let options = ExecOptions::new().on_stdout(move |_| tell.send(()).unwrap());
    let exec = vm.exec("echo up; exec sleep 600", options);
    let disposal = async {
        told.recv().await.unwrap();
        let begun = Instant::now();
        let late = async {
            tokio::task::yield_now().await;
            vm.exec("true", ExecOptions::new()).await
        };
        let (disposed, late) = tokio::join!(vm.dispose_with_grace(DEADLINE), late);
        disposed.unwrap();
        (begun.elapsed(), late)
    };
    let (exec, (took, late)) = within(async { tokio::join!(exec, disposal) }).await;
    assert!(took < DEADLINE / 2, "as soon as nothing is left, not after the grace: {took:?}");
    assert_eq!(exec.unwrap().exit_code, 143);
    assert!(matches!(late, Err(ClientError::Disposed)), "{late:?}");
    assert_eq!(within(polite.wait()).await.unwrap().code, 7);
    assert_eq!(stdout(&polite).await, "up\nbye\n");
    all_gone(&guests, SECOND).await;
    within(vm.dispose_with_grace(DEADLINE)).await.unwrap();
    within(vm.dispose()).await.unwrap();
}

#[tokio::test]
async fn a_grace_ends_for_those_who_do_not() {
    let vm = vm().await;
    let stubborn = spawn(&vm, "trap '' TERM; echo up; while :; do sleep 0.01; done");
    said(&stubborn, "up").await;
    let grace = Duration::from_millis(200);
    let begun = Instant::now();
    within(vm.dispose_with_grace(grace)).await.unwrap();
    assert!(begun.elapsed() >= grace);
    assert!(matches!(within(stubborn.wait()).await, Err(ClientError::Disposed)));
}

#[tokio::test]
async fn a_dispose_ends_a_grace_and_so_does_nobody_who_waits_for_it() {
    let vm = vm().await;
    let stubborn = spawn(&vm, "trap '' TERM; echo up; while :; do sleep 0.01; done");
    said(&stubborn, "up").await;
    let graceful = vm.dispose_with_grace(Duration::from_secs(3600));
    let (graceful, at_once) = within(async { tokio::join!(graceful, vm.dispose()) }).await;
    graceful.unwrap();
    at_once.unwrap();

    let sidecar = sidecar().await;
    let vm = within(AgentOs::create(AgentOsConfig::new().connection(sidecar.clone()))).await.unwrap();
    let stubborn = spawn(&vm, "trap '' TERM; echo up; while :; do sleep 0.01; done");
    said(&stubborn, "up").await;
    let guests = inits(sidecar.pid().unwrap()).into_iter().flat_map(tree).collect();
    {
        let mut dropped = Box::pin(vm.dispose_with_grace(Duration::from_millis(200)));
        assert!(futures_util::poll!(&mut dropped).is_pending());
    }
    assert!(matches!(within(stubborn.wait()).await, Err(ClientError::Disposed)), "nobody waits for ever");
    all_gone(&guests, DEADLINE).await;
}

#[tokio::test]
async fn a_vm_without_processes_ends_its_grace_at_once() {
    let vm = vm().await;
    assert_eq!(sh(&vm, "exit 3").await.exit_code, 3);
    let begun = Instant::now();
    within(vm.dispose_with_grace(DEADLINE)).await.unwrap();
    assert!(begun.elapsed() < DEADLINE / 2, "{:?}", begun.elapsed());
}

/// Makes the next process of a VM get a pid; false where the test may not.
fn next_pid(init: u32, pid: u32) -> bool {
    let set = format!("echo {} > /proc/sys/kernel/ns_last_pid", pid - 1);
    let set = std::process::Command::new("nsenter")
        .args(["-t", &init.to_string(), "-p", "sh", "-c", &set])
        .stderr(std::process::Stdio::null())
        .status();
    set.is_ok_and(|status| status.success())
}

#[tokio::test]
async fn c41_a_signal_for_a_finished_process_never_meets_whoever_has_its_pid_now() {
    let vm = vm().await;
    let [init] = inits(vm.sidecar().pid().unwrap()).into_iter().collect::<Vec<_>>()[..] else {
        panic!("one VM")
    };
    let old = spawn(&vm, "echo $$; exit 3");
    assert_eq!(within(old.wait()).await.unwrap().code, 3);
    let pid = stdout(&old).await.trim().to_owned();
    let mut young = None;
    for _ in 0..20 {
        if !next_pid(init, pid.parse().unwrap()) {
            eprintln!("skipped: only root of the host, with nsenter, chooses the pids of a VM");
            return;
        }
        let process = spawn(&vm, "echo $$; exec sleep 4733");
        let mut said = process.stdout();
        let Some(Ok(agentvm_sdk::Output::Data(bytes))) = within(said.next()).await else { panic!("no pid") };
        if String::from_utf8_lossy(&bytes).trim() == pid {
            young = Some(process);
            break;
        }
    }
    let young = young.expect("the pid comes again");
    for _ in 0..2 {
        old.kill();
        old.stop();
        vm.signal_process(old.pid(), Signal::KILL, SignalTarget::Process).unwrap();
        vm.signal_process(old.pid(), Signal::KILL, SignalTarget::Group).unwrap();
    }
    assert_eq!(within(old.stop_with_grace(SECOND)).await.unwrap().code, 3);
    assert_eq!(sh(&vm, &format!("kill -0 {pid}")).await.exit_code, 0);
    assert!(vm.get_process(young.pid()).unwrap().running);
    assert_eq!(vm.get_process(old.pid()).unwrap().exit_code, Some(3));
}
