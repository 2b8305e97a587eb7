//! Who ends when somebody else does: client, sidecar, init, VM.

use std::{
    collections::HashSet,
    io::Read as _,
    process::{Child, Command, Stdio},
    task::Poll,
    time::{Duration, Instant},
};

use agentvm_sdk::{AgentOs, AgentOsConfig, ClientError, ExecOptions, SpawnOptions};

use crate::support::{
    all_gone, inits, is_alive, kill, out, program, sidecar, tree, until, vm, within, within_limit,
};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test]
async fn dispose_ends_everything_in_the_vm_and_every_wait() {
    let vm = vm().await;
    let process = vm.spawn("sleep", ["600"], SpawnOptions::new()).unwrap();
    out(&vm, "true").await;
    let everything: HashSet<u32> = inits(vm.sidecar().pid().unwrap()).into_iter().flat_map(tree).collect();
    assert!(everything.len() >= 2, "{everything:?}");
    let exec = vm.exec("sleep 600", ExecOptions::new());
    let (exec, waited, disposed) = within(async { tokio::join!(exec, process.wait(), vm.dispose()) }).await;
    assert!(matches!(exec, Err(ClientError::Disposed)), "{exec:?}");
    assert!(matches!(waited, Err(ClientError::Disposed)), "{waited:?}");
    disposed.unwrap();
    assert!(!everything.iter().any(|pid| is_alive(*pid)), "disposed means gone");
    within(vm.dispose()).await.unwrap();
    let later = within(vm.exec("true", ExecOptions::new())).await.unwrap_err();
    assert!(matches!(later, ClientError::Disposed), "{later:?}");
    assert!(matches!(vm.spawn("true", [""; 0], SpawnOptions::new()), Err(ClientError::Disposed)));
    assert!(matches!(within(vm.all_processes()).await, Err(ClientError::Disposed)));
}

#[tokio::test]
async fn d28_dropping_the_last_handle_ends_the_vm_though_a_process_handle_lives() {
    let sidecar = sidecar().await;
    let vm = within(AgentOs::create(AgentOsConfig::new().connection(sidecar.clone()))).await.unwrap();
    let process = vm.spawn("sleep", ["600"], SpawnOptions::new()).unwrap();
    out(&vm, "true").await;
    let everything: HashSet<u32> = inits(sidecar.pid().unwrap()).into_iter().flat_map(tree).collect();
    drop(vm);
    assert!(matches!(within(process.wait()).await, Err(ClientError::Disposed)));
    all_gone(&everything, SECOND).await;
}

#[tokio::test]
async fn the_last_handle_ends_the_sidecar_and_leaves_no_zombie() {
    let vm = vm().await;
    out(&vm, "true").await;
    let pid = vm.sidecar().pid().unwrap();
    let everything = tree(pid);
    drop(vm);
    all_gone(&everything, SECOND).await;
    until("the sidecar is reaped", SECOND, || async {
        !std::path::Path::new(&format!("/proc/{pid}")).exists()
    })
    .await;
}

#[tokio::test]
async fn a_zygote_that_hangs_over_a_create_keeps_no_sidecar() {
    let vm = vm().await;
    let sidecar = vm.sidecar().pid().unwrap();
    let everything = tree(sidecar);
    let inits = inits(sidecar);
    for zygote in everything.iter().filter(|pid| **pid != sidecar && !inits.contains(pid)) {
        let zygote = rustix::process::Pid::from_raw(zygote.cast_signed()).unwrap();
        rustix::process::kill_process(zygote, rustix::process::Signal::STOP).unwrap();
    }
    let mut create = Box::pin(AgentOs::create(AgentOsConfig::new().connection(vm.sidecar().clone())));
    assert!(futures_util::poll!(&mut create).is_pending());
    // What follows it is answered: it is being built.
    out(&vm, "true").await;
    drop((create, vm));
    // The sidecar gives the zygote a second to leave.
    all_gone(&everything, 5 * SECOND).await;
}

#[tokio::test]
async fn a_dropped_create_leaves_no_vm_behind() {
    let sidecar = sidecar().await;
    let mut unanswered = 0;
    for _ in 0..20 {
        let create = AgentOs::create(AgentOsConfig::new().connection(sidecar.clone()));
        // Sent by one poll. Where this thread had to wait for a processor meanwhile, it is answered, too.
        match futures_util::poll!(Box::pin(create)) {
            Poll::Pending => unanswered += 1,
            Poll::Ready(created) => drop(created.unwrap()),
        }
    }
    assert!(unanswered > 0);
    let vm = within(AgentOs::create(AgentOsConfig::new().connection(sidecar.clone()))).await.unwrap();
    until("one VM is left", Duration::from_secs(5), || async { inits(sidecar.pid().unwrap()).len() == 1 })
        .await;
    out(&vm, "true").await;
}

#[tokio::test]
async fn d6_killing_the_sidecar_fails_every_call_within_a_second_and_ends_every_guest() {
    let vm = vm().await;
    let process = vm.spawn("sleep", ["600"], SpawnOptions::new()).unwrap();
    let mut stream = process.stdout();
    out(&vm, "true").await;
    let sidecar = vm.sidecar().pid().unwrap();
    let everything = tree(sidecar);
    assert!(everything.len() >= 4, "sidecar, zygote, init, sleep: {everything:?}");
    let exec = vm.exec("sleep 600", ExecOptions::new());
    let begun = Instant::now();
    let end = async { kill(sidecar) };
    let (exec, waited, streamed, ()) =
        within_limit(SECOND, async { tokio::join!(exec, process.wait(), stream.next(), end) }).await;
    for error in [exec.unwrap_err(), waited.unwrap_err()] {
        assert!(matches!(error, ClientError::SidecarExited { .. }), "{error:?}");
        assert!(error.to_string().contains("signal 9"), "{error}");
    }
    assert!(matches!(streamed, Some(Err(_))), "{streamed:?}");
    let info = vm.get_process(process.pid()).unwrap();
    assert_eq!((info.running, info.exit_code), (false, None), "no code is invented");
    let later = within_limit(SECOND, vm.exec("true", ExecOptions::new())).await.unwrap_err();
    assert!(matches!(later, ClientError::SidecarExited { .. }), "{later:?}");
    all_gone(&everything, SECOND.saturating_sub(begun.elapsed())).await;
    within(vm.dispose()).await.unwrap();
}

#[tokio::test]
async fn killing_an_init_ends_its_vm_and_no_other() {
    let sidecar = sidecar().await;
    let config = || AgentOsConfig::new().connection(sidecar.clone());
    let doomed = within(AgentOs::create(config())).await.unwrap();
    let doomed_init = inits(sidecar.pid().unwrap());
    let other = within(AgentOs::create(config())).await.unwrap();
    let process = doomed.spawn("sleep", ["600"], SpawnOptions::new()).unwrap();
    let bystander = other.spawn("sleep", ["600"], SpawnOptions::new()).unwrap();
    out(&doomed, "true").await;
    out(&other, "true").await;
    for pid in doomed_init {
        kill(pid);
    }
    let error = within_limit(SECOND, process.wait()).await.unwrap_err();
    assert!(matches!(error, ClientError::VmFailed { .. }), "{error:?}");
    let error = within_limit(SECOND, doomed.exec("true", ExecOptions::new())).await.unwrap_err();
    assert!(matches!(error, ClientError::VmFailed { .. }), "{error:?}");
    assert!(other.get_process(bystander.pid()).unwrap().running);
    assert_eq!(out(&other, "echo here").await, "here\n");
    within(doomed.dispose()).await.unwrap();
}

/// The `exec` example with a command line that has said "up".
fn example(command: &str) -> Child {
    let mut client = Command::new(program("exec"))
        .arg(command)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut up = [0; 3];
    client.stdout.as_mut().unwrap().read_exact(&mut up).unwrap();
    client
}

#[tokio::test]
async fn c47_killing_the_client_ends_sidecar_zygote_init_and_guests_within_a_second() {
    let mut client = example("setsid sleep 600 & trap '' TERM INT HUP; echo up; sleep 600");
    let everything = tree(client.id());
    assert!(everything.len() >= 6, "client, sidecar, zygote, init, sh, sleeps: {everything:?}");
    client.kill().unwrap();
    client.wait().unwrap();
    all_gone(&everything, SECOND).await;
}

#[tokio::test]
async fn ctrl_c_ends_the_exec_example_with_130_and_its_vm_with_it() {
    let mut client = example("trap '' INT; echo up; sleep 600");
    let everything = tree(client.id());
    let pid = rustix::process::Pid::from_child(&client);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert_eq!(client.wait().unwrap().code(), Some(130));
    all_gone(&everything, SECOND).await;
}

#[tokio::test]
async fn c44_orphans_are_reaped_and_exit_codes_stay_right() {
    let vm = vm().await;
    let mut runs = tokio::task::JoinSet::new();
    for _ in 0..50 {
        let vm = vm.clone();
        runs.spawn(async move {
            for _ in 0..10 {
                let result = within(vm.exec("(sleep 0.1 &) ; exit 7", ExecOptions::new())).await.unwrap();
                assert_eq!(result.exit_code, 7);
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
