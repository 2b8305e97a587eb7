//! Limits on time: timeouts of calls, and of the CPU time of a tree.

use std::{
    collections::HashSet,
    sync::mpsc,
    time::{Duration, Instant},
};

use agentvm_sdk::{
    AgentOs, AgentOsConfig, ClientError, ExecOptions, ExecResult, ExitCause, OutputFrom, OutputStream,
    Overflow, ProcessLimits, SpawnOptions,
};

use rustix::process::{Pid, Signal, kill_process};

use crate::support::{
    DEADLINE, inits, no_process_has_argument, out, sidecar, until, vm, within, within_limit,
};

const SECOND: Duration = Duration::from_secs(1);
const SOON: Duration = Duration::from_millis(200);

async fn timed(vm: &AgentOs, command: &str, timeout: Duration) -> ExecResult {
    within(vm.exec(command, ExecOptions::new().timeout(timeout))).await.unwrap()
}

fn assert_timed_out(result: &ExecResult) {
    assert_eq!(
        (result.exit_code, result.signal.as_deref(), result.cause, result.timed_out),
        (137, Some("SIGKILL"), ExitCause::Timeout, true)
    );
}

#[tokio::test]
async fn c16_a_timeout_a_kill_a_high_code_and_a_running_process_are_told_apart() {
    let vm = vm().await;
    assert_timed_out(&timed(&vm, "sleep 30", SOON).await);

    let process = vm.spawn("sleep", ["600"], SpawnOptions::new()).unwrap();
    assert_eq!(vm.get_process(process.pid()).unwrap().exit_code, None, "while it runs");
    process.kill();
    let status = within(process.wait()).await.unwrap();
    assert_eq!((status.code, status.cause), (137, ExitCause::Signaled));

    let result = timed(&vm, "exit 255", DEADLINE).await;
    assert_eq!((result.exit_code, result.signal, result.timed_out), (255, None, false));
    let result = timed(&vm, "kill -9 $$", DEADLINE).await;
    assert_eq!((result.exit_code, result.cause, result.timed_out), (137, ExitCause::Signaled, false));
}

#[tokio::test]
async fn a_timeout_gives_the_output_so_far_and_counts_from_the_call() {
    let vm = vm().await;
    let begun = Instant::now();
    let result = timed(&vm, "echo out; echo err >&2; sleep 600", SECOND).await;
    assert_timed_out(&result);
    assert_eq!((result.stdout.as_str(), result.stderr.as_str()), ("out\n", "err\n"));
    assert!(begun.elapsed() >= SECOND && result.duration >= SECOND, "{:?}", result.duration);
    assert_eq!(out(&vm, "echo next").await, "next\n");
}

#[tokio::test]
async fn c35_a_timeout_leaves_nothing_of_the_tree() {
    let vm = vm().await;
    let command = "for k in 1 2 3; do (while :; do :; done) & done; setsid sleep 4721 & \
                   (trap '' TERM INT HUP; sleep 4721) & sh -c 'kill -STOP $$' & yes 4721 | sort >/dev/null; wait";
    assert_timed_out(&timed(&vm, command, SECOND).await);
    until("init alone is left", SECOND, || async {
        within(vm.all_processes()).await.unwrap().iter().all(|row| row.exit_code.is_some() || row.pid == 1)
    })
    .await;
}

#[tokio::test]
async fn c38_no_trap_survives_a_timeout_and_it_holds_for_spawned_processes_too() {
    let vm = vm().await;
    let trapping = "trap '' ALRM TERM INT HUP; sleep 600; exit 0";
    assert_timed_out(&timed(&vm, trapping, SOON).await);

    let process = vm.spawn("sleep", ["4722"], SpawnOptions::new().timeout(SOON)).unwrap();
    let status = within(process.wait()).await.unwrap();
    assert_eq!((status.code, status.cause), (137, ExitCause::Timeout));
    let info = vm.get_process(process.pid()).unwrap();
    assert_eq!((info.running, info.exit_code), (false, Some(137)));
    no_process_has_argument(&vm, "4722").await;
}

#[tokio::test]
async fn c11_a_descendant_that_holds_the_pipe_defeats_no_timeout() {
    let vm = vm().await;
    let limit = 3 * SECOND;
    let options = ExecOptions::new().timeout(limit);
    let result = within_limit(limit + SECOND, vm.exec("setsid sleep 4723 & exit 0", options)).await.unwrap();
    assert_eq!((result.exit_code, result.timed_out), (0, false));
    // It may still be the shell that is about to become it.
    until("the survivor is there", DEADLINE, || async {
        within(vm.all_processes()).await.unwrap().iter().any(|row| row.args.contains(&"4723".to_owned()))
    })
    .await;
}

#[tokio::test]
async fn a_timeout_that_runs_out_after_the_end_touches_no_survivor() {
    let vm = vm().await;
    let result = timed(&vm, "sleep 4724 >/dev/null 2>&1 & exit 3", SOON).await;
    assert_eq!((result.exit_code, result.timed_out), (3, false));
    // A second one, begun later, has timed out: the first would have as well.
    assert_timed_out(&timed(&vm, "sleep 600", 2 * SOON).await);
    let table = within(vm.all_processes()).await.unwrap();
    assert!(table.iter().any(|row| row.args.contains(&"4724".to_owned())));
}

#[tokio::test]
async fn d13_zero_expires_at_once_and_the_start_never_happens() {
    let vm = vm().await;
    for timeout in [Duration::ZERO, Duration::from_nanos(0)] {
        let options = ExecOptions::new().timeout(timeout);
        let error = within(vm.exec("touch /workspace/started", options)).await.unwrap_err();
        assert!(matches!(error, ClientError::StartTimedOut { .. }), "{error:?}");
        assert_eq!(error.code().as_str(), "deadline_exceeded");
    }
    let process =
        vm.spawn("touch", ["/workspace/started"], SpawnOptions::new().timeout(Duration::ZERO)).unwrap();
    let error = within(process.wait()).await.unwrap_err();
    assert!(matches!(error, ClientError::StartTimedOut { .. }), "{error:?}");
    let info = vm.get_process(process.pid()).unwrap();
    assert_eq!((info.running, info.exit_code, info.failure), (false, None, Some(error.to_string())));
    let stderr = within(process.stderr().collect()).await.unwrap();
    assert_eq!(String::from_utf8(stderr).unwrap(), format!("{error}\n"));
    out(&vm, "test ! -e /workspace/started").await;
}

#[tokio::test]
async fn d13_huge_timeouts_never_expire_and_short_ones_round_up() {
    let vm = vm().await;
    for timeout in [Duration::MAX, Duration::from_secs(u64::MAX / 1000), Duration::from_secs(1 << 33)] {
        let result = timed(&vm, "echo fine", timeout).await;
        assert_eq!((result.stdout.as_str(), result.timed_out), ("fine\n", false), "{timeout:?}");
    }
    // Not zero: it may start, and then has a millisecond.
    match within(vm.exec("sleep 600", ExecOptions::new().timeout(Duration::from_nanos(1)))).await {
        Ok(result) => assert_timed_out(&result),
        Err(error) => assert!(matches!(error, ClientError::StartTimedOut { .. }), "{error:?}"),
    }
}

/// What the host does to the inits of VMs.
fn signal(inits: &HashSet<u32>, signal: Signal) {
    for pid in inits {
        kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), signal).unwrap();
    }
}

#[tokio::test]
async fn d12_a_start_that_hangs_beyond_its_deadline_is_unconfirmed_and_never_happens_later() {
    let sidecar = sidecar().await;
    let mut limits = ProcessLimits::default();
    limits.kill_confirmation = SECOND;
    let config = AgentOsConfig::new().connection(sidecar.clone()).process_limits(limits);
    let vm = within(AgentOs::create(config)).await.unwrap();
    let init = inits(sidecar.pid().unwrap());
    signal(&init, Signal::STOP);
    let options = ExecOptions::new().timeout(SOON);
    let error = within_limit(DEADLINE, vm.exec("touch /workspace/late", options)).await.unwrap_err();
    let ClientError::TerminationUnconfirmed { waited, .. } = &error else { panic!("{error:?}") };
    assert_eq!(*waited, SECOND);
    let process = vm.spawn("touch", ["/workspace/late"], SpawnOptions::new().timeout(SOON)).unwrap();
    let error = within(process.wait()).await.unwrap_err();
    assert!(matches!(error, ClientError::TerminationUnconfirmed { .. }), "{error:?}");
    signal(&init, Signal::CONT);
    // What comes behind it finds that it was not started.
    out(&vm, "test ! -e /workspace/late").await;
    let error = within(process.wait()).await.unwrap_err();
    assert!(matches!(error, ClientError::TerminationUnconfirmed { .. }), "the first word stays: {error:?}");
}

#[tokio::test]
async fn a_late_start_is_told_as_one_when_init_can_tell() {
    let sidecar = sidecar().await;
    let config = AgentOsConfig::new().connection(sidecar.clone());
    let vm = within(AgentOs::create(config)).await.unwrap();
    out(&vm, "true").await;
    let init = inits(sidecar.pid().unwrap());
    signal(&init, Signal::STOP);
    // What comes first may need no init to start.
    let first = vm.spawn("true", [""; 0], SpawnOptions::new()).unwrap();
    let late = vm.spawn("touch", ["/workspace/late"], SpawnOptions::new().timeout(SOON)).unwrap();
    let patient = vm.exec("echo patient", ExecOptions::new().timeout(DEADLINE));
    let (patient, ()) = tokio::join!(within(patient), async {
        tokio::time::sleep(2 * SOON).await;
        signal(&init, Signal::CONT);
    });
    assert_eq!(patient.unwrap().stdout, "patient\n");
    assert_eq!(within(first.wait()).await.unwrap().code, 0);
    let error = within(late.wait()).await.unwrap_err();
    assert!(matches!(error, ClientError::StartTimedOut { .. }), "{error:?}");
    out(&vm, "test ! -e /workspace/late").await;
}

#[tokio::test]
async fn an_expired_timeout_waits_for_no_subscriber_and_for_no_callback() {
    let vm = vm().await;
    let (blocked, blocks) = mpsc::channel::<()>();
    let options = SpawnOptions::new().timeout(SOON).on_stderr(move |_| _ = blocks.recv());
    let process = vm.spawn("sh", ["-c", "echo >&2; yes"], options).unwrap();
    let unread = process.output_from(OutputStream::Stdout, OutputFrom::Start, Overflow::Wait);
    let status = within(process.wait()).await.unwrap();
    assert_eq!((status.code, status.cause), (137, ExitCause::Timeout));
    drop((unread, blocked));
}

#[tokio::test]
async fn timeouts_need_no_runtime() {
    let vm = vm().await;
    let waited = std::thread::spawn(move || {
        let exec = vm.exec("sleep 600", ExecOptions::new().timeout(SOON));
        let result = crate::support::block_on_without_runtime(exec);
        (result, vm)
    });
    let (result, vm) = tokio::task::spawn_blocking(move || waited.join().unwrap()).await.unwrap();
    assert_timed_out(&result.unwrap());
    drop(vm);
}

#[tokio::test]
async fn a_cpu_limit_ends_a_tree_that_burns_and_none_that_sleeps() {
    let vm = vm().await;
    let limit = Duration::from_millis(300);
    let run = async |command: &str| {
        within(vm.exec(command, ExecOptions::new().cpu_time_limit(limit))).await.unwrap()
    };
    let result = run("echo begun; while :; do :; done").await;
    assert_eq!(
        (result.exit_code, result.cause, result.timed_out, result.stdout.as_str()),
        (137, ExitCause::CpuLimit, false, "begun\n")
    );
    let result = run("sleep 1; echo woke").await;
    assert_eq!((result.exit_code, result.stdout.as_str()), (0, "woke\n"));

    let burning = "for k in 1 2 3; do setsid sh -c 'while :; do :; done' & done; wait; sleep 600";
    assert_eq!(run(burning).await.cause, ExitCause::CpuLimit, "descendants count");
    let forking = "while :; do (i=0; while [ $i -lt 3000 ]; do i=$((i+1)); done); done";
    assert_eq!(run(forking).await.cause, ExitCause::CpuLimit, "children that were waited for count");
}

#[tokio::test]
async fn a_cpu_limit_holds_for_what_outlives_the_command() {
    let vm = vm().await;
    let options = ExecOptions::new().cpu_time_limit(Duration::from_millis(300));
    let command = "(exec >/dev/null 2>&1; sh -c 'while :; do :; done' 4725) & exit 0";
    let result = within(vm.exec(command, options)).await.unwrap();
    assert_eq!((result.exit_code, result.cause), (0, ExitCause::Exited));
    no_process_has_argument(&vm, "4725").await;
}
