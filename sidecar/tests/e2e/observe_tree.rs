//! What a process's descendants do, seen exactly.

use std::{ffi::OsStr, path::PathBuf, time::Duration};

use agentvm_sdk::{
    CapabilitySupport, EventCategory, ExecOptions, ObserverBackend, ObserverConfig, ObserverEvent,
    ObserverEventKind as Kind, SpawnOptions, wire::error::Code,
};

use crate::observed::{EXACT, Observed, all, codes, config, count, keepers, losses, run, shell, told};
use crate::support::{all_gone, inits, kill, said, tree, vm, within};

#[tokio::test]
async fn two_thousand_programs_are_seen_two_thousand_times() {
    for backend in EXACT {
        let observed = Observed::by(backend, "programs").await;
        let vm = &observed.vm;
        for script in [
            "i=0; while [ $i -lt 2000 ]; do /bin/true; i=$((i+1)); done",
            "i=0; while [ $i -lt 2000 ]; do /bin/true & i=$((i+1)); [ $((i % 1000)) -ne 0 ] || wait; done; wait",
        ] {
            let process = shell(vm, script);
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
    for backend in EXACT {
        let observed = Observed::by(backend, "codes").await;
        let script = "i=0; while [ $i -lt 1000 ]; do (exit $((i % 200))); i=$((i+1)); done
                      sh -c 'kill -9 $$'; sh -c 'kill -15 $$'; :";
        let codes = codes(&run(&observed.vm, script).await);
        assert_eq!(codes.iter().filter(|code| **code >= 0).sum::<i32>(), 99_500, "{backend}");
        let signals: Vec<_> = codes.into_iter().filter(|code| *code < 0).collect();
        assert_eq!(signals, [-9, -15], "{backend}");
    }
}

#[tokio::test]
async fn a_second_best_means_names_its_gaps() {
    let observed = Observed::by(ObserverBackend::Notification, "gaps").await;
    let process = observed.cell(EventCategory::Process).await;
    assert_eq!(
        (process.support, process.backend),
        (CapabilitySupport::Partial, Some(ObserverBackend::Notification))
    );
    assert!(process.gaps.contains(&"stops".to_owned()), "{process:?}");
    let exact = SpawnOptions::new().observe(config().require_exact(true));
    let refused = within(observed.vm.spawn("true", [""; 0], exact).unwrap().wait()).await.unwrap_err();
    assert_eq!(refused.code(), Code::UNSUPPORTED);
}

#[tokio::test]
async fn what_never_executes_anything_is_seen_too() {
    for backend in EXACT {
        let observed = Observed::by(backend, "forks").await;
        let vm = &observed.vm;
        let process = shell(vm, "i=0; while [ $i -lt 2000 ]; do (:); i=$((i+1)); done");
        let events = told(&process).await;
        assert_eq!(count(&events, "descendant-started", &process), 2000);
        assert_eq!(codes(&events), [0; 2000]);
    }
}

#[tokio::test]
async fn orphans_are_seen_to_their_end() {
    for backend in EXACT {
        let observed = Observed::by(backend, "orphans").await;
        let vm = &observed.vm;
        let codes = codes(&run(vm, "i=0; while [ $i -lt 500 ]; do ( (exit 7) & ); i=$((i+1)); done").await);
        assert_eq!(codes.iter().filter(|code| **code == 7).count(), 500);
    }
}

#[tokio::test]
async fn a_daemon_that_outlives_its_root_is_an_orphan_and_has_not_ended() {
    for backend in EXACT {
        let observed = Observed::by(backend, "daemon").await;
        let init = inits(observed.server.pid()).into_iter().next().unwrap();
        let script = "mkfifo up; setsid sh -c 'echo > up; read never < up' & read line < up; exit 3";
        let process = shell(&observed.vm, script);
        let events = process.observer().unwrap();
        assert_eq!(within(process.wait()).await.unwrap().code, 3);
        let orphan = loop {
            let event = within(events.recv()).await.unwrap();
            if event.kind == Kind::Orphaned {
                break event;
            }
        };
        // What it executes may be told only now.
        let over = |event: &ObserverEvent| ["descendant-exited", "complete"].contains(&event.kind.as_str());
        assert_eq!(events.drain().into_iter().find(over), None, "it lives, and nothing is over");
        let of_vm = tree(init);
        within(observed.vm.dispose()).await.unwrap();
        while let Some(event) = within(events.recv()).await {
            assert!(event.kind != Kind::Orphaned, "it was one already: {orphan:?}");
        }
        all_gone(&of_vm, Duration::from_secs(5)).await;
    }
}

#[tokio::test]
async fn programs_are_told_with_arguments_and_folder() {
    for backend in EXACT {
        let observed = Observed::by(backend, "arguments").await;
        let vm = &observed.vm;
        let events = run(vm, "cd /tmp && /bin/echo 'a b' '' \"$(printf 'caf\\351')\" >/dev/null; :").await;
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
async fn pipelines_run_as_if_nobody_looked() {
    for backend in EXACT {
        let observed = Observed::by(backend, "pipelines").await;
        let vm = &observed.vm;
        let script =
            "i=0; while [ $i -lt 800 ]; do echo x | cat | cat >/dev/null || exit 9; i=$((i+1)); done";
        let process = shell(vm, script);
        assert_eq!(count(&told(&process).await, "descendant-exited", &process), 2400);
        assert_eq!(within(process.wait()).await.unwrap().code, 0);
    }
}

#[tokio::test]
async fn everything_that_ended_before_is_queued_when_wait_returns() {
    for backend in EXACT {
        let observed = Observed::by(backend, "queued").await;
        let vm = &observed.vm;
        for _ in 0..100 {
            let process = shell(vm, "/bin/true; /bin/false; exit 4");
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
    let found = all(&process).await;
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
        let keepers = keepers(vm.sidecar().pid().unwrap());
        assert_eq!(keepers.len(), 1, "one keeper sees all of a VM");
        kill(keepers[0]);
        assert_eq!(within(process.wait()).await.unwrap().code, 6);
        let found = all(&process).await;
        let loss = Kind::Loss { reason: "keeper_gone".to_owned(), count: 0 };
        assert_eq!(losses(&found), [&loss]);
        let ends: Vec<_> = found.iter().rev().map(|event| event.kind.as_str()).take(2).collect();
        assert_eq!(ends, ["complete", "exited"]);
    }
}

#[tokio::test]
async fn who_never_reads_loses_the_oldest_and_is_told_how_many() {
    let vm = vm().await;
    let config = ObserverConfig::with_categories([EventCategory::File]).buffered_events(4096);
    let script = "i=0; while [ $i -lt 10000 ]; do : </dev/null; i=$((i+1)); done";
    let process = vm.spawn("sh", ["-c", script], SpawnOptions::new().observe(config)).unwrap();
    let events = process.observer().unwrap();
    assert_eq!(within(process.wait()).await.unwrap().code, 0);
    let mut found = events.drain();
    while let Some(event) = within(events.recv()).await {
        found.push(event);
    }
    let Kind::Loss { reason, count } = &found[0].kind else { panic!("{:?}", found[0]) };
    let kept = found.len() as u64 - 1;
    assert_eq!(reason, Kind::OVERFLOW);
    // `complete` may come only when there is room again.
    let told =
        || format!("{kept} behind {:?}; losses {:?}; last {:?}", found[0], losses(&found), found.last());
    assert!((4096..=4097).contains(&kept), "{}", told());
    assert!(count + kept >= 10_000, "{count}");
    assert!(found[1..].iter().all(|event| event.kind.as_str() != "loss"));
}

#[tokio::test]
async fn where_listeners_are_all_there_is_of_what_ran_before_only_the_end_is_told() {
    let observed = Observed::by(ObserverBackend::Notification, "before").await;
    let vm = &observed.vm;
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
