//! What runs already when its VM is observed.

use std::time::Duration;

use agentvm_sdk::{
    AgentOs, AgentOsConfig, EventCategory, Isolation, ObserverConfig, ObserverEvent,
    ObserverEventKind as Kind, ObserverSubscriber, Process, SpawnOptions,
};

use crate::fixture::{FIXTURE, OnHost, let_in};
use crate::observed::{assert_in_order, config, losses};
use crate::support::{inits, is_alive, said, sh, sidecar, tree, until, vm, within};

/// Starts what nobody observes, and waits until it is up.
async fn started(vm: &AgentOs, command: &str, args: &[&str]) -> Process {
    let process = vm.spawn(command, args.iter().copied(), SpawnOptions::new()).unwrap();
    said(&process, "up").await;
    process
}

/// Observes, and takes what is told first.
async fn observe(vm: &AgentOs, first: usize) -> (ObserverSubscriber, Vec<ObserverEvent>) {
    let (events, mut told) = (within(vm.observe(&config())).await.unwrap(), Vec::new());
    while told.len() < first {
        told.push(within(events.recv()).await.unwrap());
    }
    (events, told)
}

/// Everything up to an event.
async fn up_to(events: &ObserverSubscriber, is: impl Fn(&ObserverEvent) -> bool) -> Vec<ObserverEvent> {
    let mut found = Vec::new();
    while !found.last().is_some_and(&is) {
        found.push(within(events.recv()).await.unwrap());
    }
    found
}

fn adopted(events: &[ObserverEvent]) -> Vec<&ObserverEvent> {
    events.iter().filter(|event| event.kind == Kind::DescendantStarted { adopted: true }).collect()
}

async fn everything(vm: &AgentOs, events: &ObserverSubscriber) -> Vec<ObserverEvent> {
    within(vm.dispose_with_grace(Duration::from_secs(30))).await.unwrap();
    up_to(events, |event| event.kind == Kind::Complete).await
}

#[tokio::test]
async fn a_tree_that_runs_already_is_told_and_seen_from_then_on() {
    const SCRIPT: &str =
        "mkfifo one two; sh -c 'read line < one' & sh -c 'read line < two; exit 9' & echo up; read line
        i=0; while [ $i -lt 100 ]; do /bin/true; i=$((i+1)); done; wait; exit 5";
    let vm = vm().await;
    let process = started(&vm, "sh", &["-c", SCRIPT]).await;
    let (events, mut told) = observe(&vm, 3).await;
    let root = told[0].clone();
    assert_eq!((&root.kind, root.pid), (&Kind::Started { adopted: true }, Some(process.pid())));
    let children: Vec<_> = adopted(&told).into_iter().cloned().collect();
    assert_eq!(children.len(), 2, "{told:?}");
    assert!(root.key.is_some() && children.iter().all(|child| child.parent_key == root.key), "{told:?}");

    assert_eq!(sh(&vm, &format!("kill -9 {}; echo > two", children[0].pid.unwrap())).await.exit_code, 0);
    within(process.write_stdin_all("go\n")).await.unwrap();
    assert_eq!(within(process.wait()).await.unwrap().code, 5);
    told.extend(events.drain());
    let of_root = |kind: &str| {
        let theirs = told.iter().filter(|event| event.parent_key == root.key && event.kind.as_str() == kind);
        theirs.map(|event| event.kind.folded_code()).collect::<Vec<_>>()
    };
    assert_eq!((of_root("descendant-started").len(), of_root("descendant-exec").len()), (102, 100));
    let mut codes = of_root("descendant-exited");
    codes.sort_unstable();
    assert_eq!((codes[0], &codes[1..101], codes[101]), (Some(-9), &[Some(0); 100][..], Some(9)));
    let end = told.iter().find(|event| event.kind.as_str() == "exited" && event.pid == root.pid).unwrap();
    assert_eq!((end.kind.folded_code(), end.key), (Some(5), root.key));
    told.extend(everything(&vm, &events).await);
    assert_in_order(&told);
    assert_eq!(losses(&told), Vec::<&Kind>::new());
}

#[tokio::test]
async fn every_thread_is_taken() {
    let vm = vm().await;
    let_in(&vm).await;
    let process = started(&vm, FIXTURE, &["threads", "later"]).await;
    let (events, mut told) = observe(&vm, 1).await;
    process.close_stdin();
    assert_eq!(within(process.wait()).await.unwrap().code, 4);
    told.extend(everything(&vm, &events).await);
    assert_in_order(&told);
    let count = |kind: &str| told.iter().filter(|event| event.kind.as_str() == kind).count();
    assert_eq!((count("descendant-started"), count("descendant-exited"), count("exited")), (5, 5, 1));
    assert_eq!(losses(&told), Vec::<&Kind>::new());
}

#[tokio::test]
async fn who_has_outlived_its_root_is_found_too() {
    let vm = vm().await;
    let script = "mkfifo up end; setsid sh -c 'echo > up; read line < end; exit 3' & read line < up; echo up";
    let process = started(&vm, "sh", &["-c", script]).await;
    within(process.wait()).await.unwrap();
    let (events, told) = observe(&vm, 1).await;
    let daemons = adopted(&told);
    assert_eq!(daemons.len(), 1, "{told:?}");
    assert_eq!(sh(&vm, "echo > end").await.exit_code, 0);
    let ends = |event: &ObserverEvent| event.key == daemons[0].key && event.kind.folded_code() == Some(3);
    up_to(&events, ends).await;
}

#[tokio::test]
async fn a_second_observer_is_told_whom_the_first_sees() {
    let vm = vm().await;
    let _process = started(
        &vm,
        "sh",
        &["-c", "mkfifo never; sh -c 'sh -c \"echo up; read line < never\" & wait' & wait"],
    )
    .await;
    let (_first, told) = observe(&vm, 3).await;
    let (_second, again) = observe(&vm, 3).await;
    let keys = |events: &[ObserverEvent]| adopted(events).iter().map(|event| event.key).collect::<Vec<_>>();
    assert_eq!((again[0].key, keys(&again)), (told[0].key, keys(&told)));
}

#[tokio::test]
async fn who_is_not_observed_any_more_runs_on_untraced() {
    let vm = vm().await;
    let script = "sh -c 'kill -STOP $$; exit 7' & child=$!; echo up; read line; kill -CONT $child; wait $child; exit $?";
    let process = started(&vm, "sh", &["-c", script]).await;
    let guests: Vec<u32> = inits(vm.sidecar().pid().unwrap()).into_iter().flat_map(tree).collect();
    let traced = || {
        let tracer = |pid: &u32| {
            let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            status.lines().any(|line| line.starts_with("TracerPid:") && !line.ends_with("\t0"))
        };
        guests.iter().filter(|pid| is_alive(**pid) && tracer(pid)).count()
    };
    assert_eq!(traced(), 0);
    let (events, _) = observe(&vm, 0).await;
    assert!(traced() >= 2);
    events.stop();
    until("nobody is traced", Duration::from_secs(10), || async { traced() == 0 }).await;
    process.close_stdin();
    assert_eq!(
        within(process.wait()).await.unwrap().code,
        7,
        "who was stopped stayed so until it was continued"
    );
}

#[tokio::test]
async fn who_cannot_be_taken_is_told_to_be_missed_and_runs_on() {
    let (sandbox, plain) = (vm().await, {
        let config = AgentOsConfig::new().isolation(Isolation::None).connection(sidecar().await);
        within(AgentOs::create(config)).await.unwrap()
    });
    let rights = rustix::process::geteuid().is_root();
    let_in(&sandbox).await;
    let on_host = OnHost::new("adopted");
    for (vm, program, what, missed) in [
        (&sandbox, FIXTURE, &["traces", "later"][..], Some("traced")),
        (&sandbox, FIXTURE, &["hidden"], None),
        (&plain, on_host.0.to_str().unwrap(), &["hidden"], (!rights).then_some("not_permitted")),
    ] {
        let process = started(vm, program, what).await;
        let events = within(vm.observe(&config())).await.unwrap();
        let told = up_to(&events, |event| event.kind == Kind::Started { adopted: true }).await;
        let reasons: Vec<_> = losses(&told)
            .into_iter()
            .map(|loss| match loss {
                Kind::Loss { reason, .. } => reason.as_str(),
                _ => unreachable!("it is one"),
            })
            .collect();
        assert_eq!(reasons.first().copied(), missed, "{what:?}");
        process.close_stdin();
        assert_eq!(within(process.wait()).await.unwrap().code, 0, "{what:?}");
    }
}

#[tokio::test]
async fn of_what_ran_before_files_are_not_seen_and_a_loss_says_so() {
    let vm = vm().await;
    let process = started(&vm, "sh", &["-c", "echo up; read line; : > made; /bin/true; exit 8"]).await;
    let categories = [EventCategory::Process, EventCategory::File];
    let events = within(vm.observe(&ObserverConfig::with_categories(categories))).await.unwrap();
    process.close_stdin();
    assert_eq!(within(process.wait()).await.unwrap().code, 8);
    let told = events.drain();
    assert_eq!(losses(&told), [&Kind::Loss { reason: "already_running".to_owned(), count: 0 }]);
    let loss = told.iter().find(|event| event.kind.as_str() == "loss").unwrap();
    assert_eq!(loss.category, EventCategory::File);
    assert!(told.iter().any(|event| event.kind.as_str() == "descendant-exited"));
}
