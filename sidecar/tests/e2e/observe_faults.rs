//! What cannot be observed as it should: it runs as ever, and what is missing is told.

use std::{fs, process::Command};

use agentvm_sdk::{
    AgentOs, AgentOsConfig, CapabilitySupport, EventCategory, Isolation, ObserverBackend, ObserverConfig,
    ObserverEventKind as Kind, Process, SpawnOptions, TraceScope,
};
use rustix::io::Errno;
use rustix::process::{Pid, Resource, Rlimit, prlimit};

use crate::fixture::OnHost;
use crate::observed::{EXACT, Observed, all, codes, ends, keepers, losses, run, shell, told};
use crate::serve::Server;
use crate::support::{said, within};

#[tokio::test]
async fn a_program_has_a_listener_of_its_own_or_is_refused_it_and_the_gap_is_named() {
    for backend in EXACT {
        let observed = Observed::by(backend, "listens").await;
        let seen = observed.fixture("listens").await;
        let refused = observed.has_gap(EventCategory::Process, "nested_listener").await;
        assert_eq!(ends(&seen), [if refused { Errno::BUSY.raw_os_error() } else { 0 }], "{backend}");
        assert!(observed.has_gap(EventCategory::File, "nested_listener").await);
    }
}

#[tokio::test]
async fn below_a_listener_of_somebody_else_the_ladder_is_gone_down() {
    for isolation in [Isolation::Sandbox, Isolation::Confined] {
        let sidecar = below_a_listener("ladder", |_| {}).await;
        let vm = sidecar.vm_with(AgentOsConfig::new().isolation(isolation)).await;
        let matrix = within(vm.observer_capabilities(TraceScope::LaunchedProcessTree)).await.unwrap();
        let process = matrix.category(EventCategory::Process).unwrap();
        assert_eq!(
            (process.support, process.backend),
            (CapabilitySupport::Supported, Some(ObserverBackend::Ptrace))
        );
        assert_eq!(codes(&run(&vm, "/bin/true; /bin/false; exit 3").await), [0, 1]);
        assert_cannot_be_seen(&vm, EventCategory::File).await;

        let notification = ("AGENTVM_OBSERVER_BACKEND", "notification");
        let sidecar =
            below_a_listener("lowest", |command| _ = command.env(notification.0, notification.1)).await;
        let vm = sidecar.vm_with(AgentOsConfig::new().isolation(isolation)).await;
        assert_cannot_be_seen(&vm, EventCategory::Process).await;
    }
}

async fn below_a_listener(test: &str, prepare: impl FnOnce(&mut Command)) -> Server {
    let wrapper = OnHost::new(test);
    let mut command = Command::new(&wrapper.0);
    prepare(command.arg("listened"));
    Server::start_by(&format!("observe-{test}"), &["sandbox", "confined"], command).await
}

/// The matrix says why, and what is run all the same has one loss.
async fn assert_cannot_be_seen(vm: &AgentOs, category: EventCategory) {
    let matrix = within(vm.observer_capabilities(TraceScope::LaunchedProcessTree)).await.unwrap();
    let cell = matrix.category(category).unwrap();
    assert_eq!(cell.support, CapabilitySupport::Unavailable);
    assert!(cell.reason.contains("resource busy"), "{cell:?}");
    let options = SpawnOptions::new().observe(ObserverConfig::with_categories([category]));
    let process = vm.spawn("sh", ["-c", "/bin/true; exit 3"], options).unwrap();
    let seen: Vec<_> = all(&process).await.into_iter().map(|event| event.kind).collect();
    assert_eq!(seen, [Kind::Loss { reason: "unavailable".to_owned(), count: 0 }, Kind::Complete]);
    assert_eq!(within(process.wait()).await.unwrap().code, 3);
}

/// The only keeper there is, once a process has said that it is up.
async fn keeper(observed: &Observed, process: &Process) -> Pid {
    said(process, "up").await;
    let keepers = keepers(observed.server.pid());
    assert_eq!(keepers.len(), 1);
    Pid::from_raw(keepers[0].cast_signed()).unwrap()
}

fn limit(keeper: Pid, resource: Resource, most: u64) {
    prlimit(Some(keeper), resource, Rlimit { current: Some(most), maximum: Some(most) }).unwrap();
}

#[tokio::test]
async fn more_processes_than_a_keeper_has_descriptors_for_are_told_as_lost() {
    const SCRIPT: &str = "echo up; read go; pids=; i=0
        while [ $i -lt 100 ]; do sleep 600 & pids=\"$pids $!\"; i=$((i+1)); done
        read go; kill $pids; wait; /bin/true; exit 6";
    let observed = Observed::by(ObserverBackend::Notification, "descriptors").await;
    let process = shell(&observed.vm, SCRIPT);
    limit(keeper(&observed, &process).await, Resource::Nofile, 64);
    let events = process.observer().unwrap();
    within(process.write_stdin_all("go\n")).await.unwrap();
    while within(events.recv()).await.unwrap().kind.as_str() != "loss" {}

    let unseen = shell(&observed.vm, "/bin/true; exit 7");
    let told_of_unseen = all(&unseen).await;
    assert_eq!((ends(&told_of_unseen), losses(&told_of_unseen).len()), (vec![7], 1));
    within(process.write_stdin_all("go\n")).await.unwrap();
    let seen = all(&process).await;
    let too_many = |loss: &&Kind| matches!(loss, Kind::Loss { reason, .. } if reason == "too_many");
    let others: Vec<_> = losses(&seen).into_iter().filter(|loss| !too_many(loss)).collect();
    assert_eq!(others, Vec::<&Kind>::new());
    assert_eq!((ends(&seen), codes(&seen).last()), (vec![6], Some(&0)), "what comes later is seen again");
}

#[tokio::test]
async fn more_trees_than_a_keeper_has_threads_for_run_unseen() {
    const PROCESSES: [EventCategory; 2] = [EventCategory::Lifecycle, EventCategory::Process];
    const FILES: [EventCategory; 3] = [EventCategory::Lifecycle, EventCategory::Process, EventCategory::File];
    // A thread takes 256 KiB for its stack: there is room for no other, or, of the two that are needed, for one.
    for (room, categories) in [(128 << 10, &PROCESSES[..]), (384 << 10, &FILES)] {
        let observed = Observed::by(ObserverBackend::Ptrace, &format!("threads-{room}")).await;
        let options =
            || SpawnOptions::new().observe(ObserverConfig::with_categories(categories.iter().copied()));
        let old = observed.vm.spawn("sh", ["-c", "echo up; read go; /bin/false; exit 5"], options()).unwrap();
        let keeper = keeper(&observed, &old).await;
        let pid = keeper.as_raw_nonzero();
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let size = status.lines().find_map(|line| line.strip_prefix("VmSize:")).unwrap();
        let size_kib: u64 = size.trim().trim_end_matches(" kB").parse().unwrap();
        limit(keeper, Resource::As, (size_kib << 10) + room);

        let unseen = observed.vm.spawn("sh", ["-c", "/bin/true; exit 7"], options()).unwrap();
        let seen = all(&unseen).await;
        assert_eq!(within(unseen.wait()).await.unwrap().code, 7);
        assert_eq!(
            losses(&seen),
            [&Kind::Loss { reason: "too_many".to_owned(), count: 0 }],
            "{categories:?}"
        );
        old.close_stdin();
        assert_eq!(codes(&told(&old).await), [1], "what is watched goes on being seen");
        assert_eq!(within(old.wait()).await.unwrap().code, 5);
    }
}
