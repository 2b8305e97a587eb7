//! What a process's descendants do, seen exactly.

use std::{collections::HashMap, ffi::OsStr, fs, path::PathBuf};

use agentvm_sdk::{
    AgentOs, CapabilitySupport, EventCategory, ExecOptions, ObserverBackend, ObserverConfig, ObserverEvent,
    ObserverEventKind as Kind, Process, ProcessKey, SpawnOptions, TraceScope, wire::error::Code,
};

use crate::serve::Server;
use crate::support::{children, is_alive, kill, said, vm, within};

fn config() -> ObserverConfig {
    ObserverConfig::with_categories([EventCategory::Lifecycle, EventCategory::Process])
}

fn shell(vm: &AgentOs, script: &str) -> Process {
    vm.spawn("sh", ["-c", script], SpawnOptions::new().observe(config())).unwrap()
}

/// A sidecar that sees processes by notification alone: what holds by `ptrace(2)` holds by the next best means, too.
async fn notified(test: &str) -> Server {
    Server::start_with(&format!("observe-{test}"), ("AGENTVM_OBSERVER_BACKEND", "notification")).await
}

/// Everything that is told of a process, to the end.
async fn told(process: &Process) -> Vec<ObserverEvent> {
    let (events, mut found) = (process.observer().unwrap(), Vec::new());
    while let Some(event) = within(events.recv()).await {
        found.push(event);
    }
    within(process.wait()).await.unwrap();
    assert_in_order(&found);
    found
}

/// Runs a script to its end.
async fn run(vm: &AgentOs, script: &str) -> Vec<ObserverEvent> {
    told(&shell(vm, script)).await
}

/// Of each process the start comes first and the end last, a parent's start before its child's, and `complete` last.
fn assert_in_order(events: &[ObserverEvent]) {
    let mut stage: HashMap<ProcessKey, u8> = HashMap::new();
    for (index, event) in events.iter().enumerate() {
        assert_eq!(event.seq, index as u64 + 1);
        let Some(key) = event.key else { continue };
        let (least, now) = match event.kind {
            Kind::Started { .. } | Kind::DescendantStarted { .. } => (0, 1),
            Kind::Exited { .. } | Kind::DescendantExited { .. } => (1, 2),
            _ => (1, 1),
        };
        assert_eq!(stage.insert(key, now).unwrap_or(0), least, "{event:?}");
        if let (Kind::DescendantStarted { .. }, Some(parent)) = (&event.kind, event.parent_key) {
            assert!(stage.contains_key(&parent), "{event:?}");
        }
    }
    assert_eq!(events.last().map(|event| event.kind.as_str()), Some("complete"));
    assert!(
        !events.iter().any(|event| event.kind.as_str() == "loss"),
        "{:?}",
        events.iter().find(|event| event.kind.as_str() == "loss")
    );
}

fn count(events: &[ObserverEvent], kind: &str, root: &Process) -> usize {
    events.iter().filter(|event| event.kind.as_str() == kind && event.pid != Some(root.pid())).count()
}

fn codes(events: &[ObserverEvent]) -> Vec<i32> {
    let ends = events.iter().filter(|event| event.kind.as_str() == "descendant-exited");
    ends.filter_map(|event| event.kind.folded_code()).collect()
}

#[tokio::test]
async fn two_thousand_programs_are_seen_two_thousand_times() {
    let server = notified("programs").await;
    for vm in [vm().await, server.vm().await] {
        for script in [
            "i=0; while [ $i -lt 2000 ]; do /bin/true; i=$((i+1)); done",
            "i=0; while [ $i -lt 2000 ]; do /bin/true & i=$((i+1)); [ $((i % 200)) -ne 0 ] || wait; done; wait",
        ] {
            let process = shell(&vm, script);
            let events = told(&process).await;
            let seen = ["descendant-started", "descendant-exec", "descendant-exited"]
                .map(|kind| count(&events, kind, &process));
            assert_eq!(seen, [2000; 3], "{script}");
            assert_eq!(codes(&events), [0; 2000]);
        }
    }
}

#[tokio::test]
async fn every_end_has_its_code_or_its_signal() {
    let vm = vm().await;
    let script = "i=0; while [ $i -lt 1000 ]; do (exit $((i % 200))); i=$((i+1)); done
                  sleep 600 & kill -9 $!; sleep 600 & kill -15 $!; wait";
    let codes = codes(&run(&vm, script).await);
    assert_eq!(codes.iter().filter(|code| **code >= 0).sum::<i32>(), 99_500);
    let mut signals: Vec<_> = codes.into_iter().filter(|code| *code < 0).collect();
    signals.sort_unstable();
    assert_eq!(signals, [-15, -9]);
}

#[tokio::test]
async fn a_second_best_means_names_its_gaps() {
    let server = notified("gaps").await;
    let vm = server.vm().await;
    let tree = within(vm.observer_capabilities(TraceScope::LaunchedProcessTree)).await.unwrap();
    let process = tree.category(EventCategory::Process).unwrap();
    assert_eq!(
        (process.support, process.backend),
        (CapabilitySupport::Partial, Some(ObserverBackend::Notification))
    );
    assert!(process.gaps.contains(&"stops".to_owned()), "{process:?}");
    let exact = SpawnOptions::new().observe(config().require_exact(true));
    let refused = within(vm.spawn("true", [""; 0], exact).unwrap().wait()).await.unwrap_err();
    assert_eq!(refused.code(), Code::UNSUPPORTED);
}

#[tokio::test]
async fn what_never_executes_anything_is_seen_too() {
    let server = notified("forks").await;
    for vm in [vm().await, server.vm().await] {
        let process = shell(&vm, "i=0; while [ $i -lt 2000 ]; do (:); i=$((i+1)); done");
        let events = told(&process).await;
        assert_eq!(count(&events, "descendant-started", &process), 2000);
        assert_eq!(codes(&events), [0; 2000]);
    }
}

#[tokio::test]
async fn orphans_are_seen_to_their_end() {
    let server = notified("orphans").await;
    for vm in [vm().await, server.vm().await] {
        let codes = codes(&run(&vm, "i=0; while [ $i -lt 500 ]; do ( (exit 7) & ); i=$((i+1)); done").await);
        assert_eq!(codes.iter().filter(|code| **code == 7).count(), 500);
    }
}

#[tokio::test]
async fn a_daemon_that_outlives_its_root_is_an_orphan_and_has_not_ended() {
    let vm = vm().await;
    let process = shell(&vm, "setsid sh -c 'sleep 600 & wait' >/dev/null 2>&1 & sleep 0.1; exit 3");
    let events = process.observer().unwrap();
    assert_eq!(within(process.wait()).await.unwrap().code, 3);
    let mut orphans = Vec::new();
    while orphans.len() < 2 {
        let event = within(events.recv()).await.unwrap();
        match event.kind {
            Kind::Orphaned => orphans.push(event.key.unwrap()),
            Kind::DescendantExited { .. } => assert!(!orphans.contains(&event.key.unwrap())),
            _ => {}
        }
    }
    within(vm.dispose()).await.unwrap();
    while let Some(event) = within(events.recv()).await {
        assert_ne!(event.kind.as_str(), "orphaned");
    }
}

#[tokio::test]
async fn programs_are_told_with_arguments_and_folder() {
    let server = notified("arguments").await;
    for vm in [vm().await, server.vm().await] {
        let events = run(&vm, "cd /tmp && /bin/echo 'a b' '' \"$(printf 'caf\\351')\" >/dev/null; :").await;
        let exec = events
            .iter()
            .find(|event| event.kind.argv().next().is_some_and(|arg0| arg0 == "/bin/echo"))
            .unwrap();
        let Kind::DescendantExec { cwd, truncated: false, .. } = &exec.kind else { panic!("{exec:?}") };
        assert_eq!(cwd.as_deref(), Some("/tmp"));
        let argv: Vec<_> = exec.kind.argv().map(OsStr::as_encoded_bytes).collect();
        assert_eq!(argv, [&b"/bin/echo"[..], b"a b", b"", b"caf\xe9"]);
        let shell = events.iter().find(|event| event.kind.as_str() == "started").unwrap();
        assert_eq!(exec.parent_key, shell.key);
    }
}

#[tokio::test]
async fn one_that_stops_itself_goes_on_and_ends() {
    let vm = vm().await;
    let process =
        shell(&vm, "sh -c 'kill -STOP $$; exit 5' & child=$!; read go; kill -CONT $child; wait $child");
    let events = process.observer().unwrap();
    let stopped = loop {
        let event = within(events.recv()).await.unwrap();
        if event.kind == (Kind::DescendantStopped { signal: 19 }) {
            break event;
        }
    };
    process.close_stdin();
    let after: Vec<_> = told(&process)
        .await
        .iter()
        .filter(|event| event.key == stopped.key && event.seq > stopped.seq)
        .map(|event| (event.kind.as_str(), event.kind.folded_code()))
        .collect();
    assert_eq!(after, [("descendant-continued", None), ("descendant-exited", Some(5))]);
}

#[tokio::test]
async fn pipelines_run_as_if_nobody_looked() {
    let server = notified("pipelines").await;
    for vm in [vm().await, server.vm().await] {
        let script =
            "i=0; while [ $i -lt 800 ]; do echo x | cat | cat >/dev/null || exit 9; i=$((i+1)); done";
        let process = shell(&vm, script);
        assert_eq!(count(&told(&process).await, "descendant-exited", &process), 2400);
        assert_eq!(within(process.wait()).await.unwrap().code, 0);
    }
}

#[tokio::test]
async fn everything_that_ended_before_is_queued_when_wait_returns() {
    let server = notified("queued").await;
    for vm in [vm().await, server.vm().await] {
        for _ in 0..100 {
            let process = shell(&vm, "/bin/true; /bin/false; exit 4");
            let events = process.observer().unwrap();
            within(process.wait()).await.unwrap();
            let found = events.drain();
            assert_eq!(codes(&found), [0, 1], "{found:?}");
            assert!(found.iter().any(|event| event.kind.folded_code() == Some(4)), "{found:?}");
        }
    }
}

#[tokio::test]
async fn a_vm_is_observed_with_all_its_trees() {
    let vm = vm().await;
    let events = within(vm.observe(&config())).await.unwrap();
    let ran = within(vm.exec("/bin/true; /bin/false; exit 4", ExecOptions::new())).await.unwrap();
    assert_eq!(ran.exit_code, 4);
    let found = events.drain();
    assert_eq!(codes(&found), [0, 1], "{found:?}");
    assert!(found.iter().any(|event| event.kind.folded_code() == Some(4)), "{found:?}");
}

#[tokio::test]
async fn nobody_is_seen_any_more_once_nobody_observes() {
    let vm = vm().await;
    let process =
        shell(&vm, "echo up; read line; i=0; while [ $i -lt 100 ]; do /bin/true; i=$((i+1)); done; exit 6");
    said(&process, "up").await;
    drop(process.observer());
    process.close_stdin();
    assert_eq!(within(process.wait()).await.unwrap().code, 6, "it runs on");
}

#[tokio::test]
async fn files_and_connections_are_told_as_they_are_tried() {
    let vm = vm().await;
    let config = ObserverConfig::with_categories([EventCategory::File, EventCategory::Network]);
    let script = "echo x > made; mv made moved; rm moved; mkdir folder; rmdir folder
        python3 -c 'import socket; s = socket.create_server((\"127.0.0.1\", 0)); socket.create_connection(s.getsockname())'";
    let process = vm.spawn("sh", ["-c", script], SpawnOptions::new().observe(config)).unwrap();
    let (events, mut found) = (process.observer().unwrap(), Vec::new());
    while let Some(event) = within(events.recv()).await {
        found.push(event);
    }
    assert!(within(process.wait()).await.unwrap().success());
    let of = |kind: &str| found.iter().filter(|event| event.kind.as_str() == kind).collect::<Vec<_>>();
    let paths = |kind: &str| {
        of(kind).iter().filter_map(|event| event.kind.path()).map(PathBuf::from).collect::<Vec<_>>()
    };
    let at = |name: &str| PathBuf::from("/workspace").join(name);
    assert!(paths("file-open").contains(&at("made")), "{found:?}");
    assert_eq!(paths("file-rename"), [at("moved")]);
    assert_eq!(of("file-rename")[0].kind.from_path(), Some(&*at("made")));
    assert_eq!(
        (paths("file-unlink"), paths("file-mkdir"), paths("file-rmdir")),
        (vec![at("moved")], vec![at("folder")], vec![at("folder")])
    );
    let connects = of("network-connect");
    let Kind::NetworkConnect { address } = &connects.last().unwrap().kind else { unreachable!("it is one") };
    assert_eq!(
        (address.addr.as_deref(), address.port.is_some_and(|port| port > 0)),
        (Some("127.0.0.1"), true)
    );
    assert!(
        found.iter().all(|event| event.seq == 0 || event.kind.as_str() == "complete" || event.attempt),
        "{found:?}"
    );
}

#[tokio::test]
async fn a_program_runs_on_when_its_keeper_is_killed_and_one_loss_says_so() {
    let vm = vm().await;
    let script = "echo up; i=0; while [ $i -lt 300 ]; do /bin/true || exit 9; (:); i=$((i+1)); done; exit 6";
    for _ in 0..3 {
        let process = shell(&vm, script);
        said(&process, "up").await;
        let sidecar = vm.sidecar().pid().unwrap();
        let keepers: Vec<_> = children(sidecar)
            .into_iter()
            .filter(|pid| {
                fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm == "agentvm-keeper\n")
            })
            .filter(|pid| is_alive(*pid))
            .collect();
        assert_eq!(keepers.len(), 1, "one keeper sees all of a VM");
        kill(keepers[0]);
        assert_eq!(within(process.wait()).await.unwrap().code, 6);
        let (events, mut found) = (process.observer().unwrap(), Vec::new());
        while let Some(event) = within(events.recv()).await {
            found.push(event);
        }
        let losses: Vec<_> = found.iter().filter(|event| event.kind.as_str() == "loss").collect();
        assert_eq!(losses.len(), 1, "{losses:?}");
        assert_eq!(losses[0].kind, Kind::Loss { reason: "keeper_gone".to_owned(), count: 0 });
        let ends: Vec<_> = found.iter().rev().map(|event| event.kind.as_str()).take(2).collect();
        assert_eq!(ends, ["complete", "exited"]);
    }
}

#[tokio::test]
async fn who_never_reads_loses_the_oldest_and_is_told_how_many() {
    let vm = vm().await;
    let config = ObserverConfig::with_categories([EventCategory::File]);
    let script = "i=0; while [ $i -lt 100000 ]; do : </dev/null; i=$((i+1)); done";
    let process = vm.spawn("sh", ["-c", script], SpawnOptions::new().observe(config)).unwrap();
    let events = process.observer().unwrap();
    assert_eq!(within(process.wait()).await.unwrap().code, 0);
    let mut found = events.drain();
    while let Some(event) = within(events.recv()).await {
        found.push(event);
    }
    let Kind::Loss { reason, count } = &found[0].kind else { panic!("{:?}", found[0]) };
    let kept = found.len() as u64 - 1;
    assert_eq!((reason.as_str(), kept), (Kind::OVERFLOW, 65_536));
    assert!(count + kept >= 100_000, "{count}");
    assert!(found[1..].iter().all(|event| event.kind.as_str() != "loss"));
}

#[tokio::test]
async fn of_what_ran_before_only_the_end_is_told_and_a_loss_says_so() {
    let vm = vm().await;
    let old = vm.spawn("sh", ["-c", "echo up; read line; /bin/true; exit 8"], SpawnOptions::new()).unwrap();
    said(&old, "up").await;
    let events = within(vm.observe(&config())).await.unwrap();
    old.close_stdin();
    within(old.wait()).await.unwrap();
    let found: Vec<_> = events.drain().into_iter().map(|event| event.kind).collect();
    let loss = Kind::Loss { reason: "already_running".to_owned(), count: 0 };
    let exited = Kind::Exited { exit_code: Some(8), signal: None };
    assert_eq!(found, [loss, Kind::Started { adopted: true }, exited]);
}
