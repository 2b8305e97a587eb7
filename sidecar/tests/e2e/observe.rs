//! What happens to processes, told as it happens.

use std::time::Duration;

use agentvm_sdk::{
    CapabilitySupport, EventCategory, ExecOptions, ObserverConfig, ObserverEvent, ObserverEventKind as Kind,
    ObserverSubscriber, SpawnOptions, TraceScope, wire::error::Code,
};

use crate::support::{said, vm, within};

fn lifecycle() -> SpawnOptions {
    SpawnOptions::new().observe(ObserverConfig::lifecycle())
}

/// Everything to the end, in numbers without a hole.
async fn all(events: &ObserverSubscriber) -> Vec<ObserverEvent> {
    let mut found = Vec::new();
    while let Some(event) = within(events.recv()).await {
        found.push(event);
        assert_eq!(found.len() as u64, found.last().unwrap().seq);
    }
    found
}

fn kinds(events: &[ObserverEvent]) -> Vec<&'static str> {
    events.iter().map(|event| event.kind.as_str()).collect()
}

#[tokio::test]
async fn the_life_of_a_process_is_told_from_its_start_to_its_end() {
    let vm = vm().await;
    let process = vm.spawn("sh", ["-c", "exit 7"], lifecycle()).unwrap();
    let events = all(&process.observer().unwrap()).await;
    assert_eq!(kinds(&events), ["started", "exited", "complete"]);
    assert_eq!(events[1].kind, Kind::Exited { exit_code: Some(7), signal: None });
    assert_eq!(events[1].kind.folded_code(), Some(7));
    let (info, key) = (vm.get_process(process.pid()).unwrap(), events[0].key.unwrap());
    assert_eq!(events[1].key, Some(key));
    for event in &events {
        assert_eq!(event.pid, Some(process.pid()), "{event:?}");
        assert_eq!(event.category, EventCategory::Lifecycle);
    }
    assert_eq!(events[0].timestamp_ms, info.started_at_ms);
    within(process.wait()).await.unwrap();
    assert_eq!(Some(events[1].timestamp_ms), vm.get_process(process.pid()).unwrap().exited_at_ms);
    assert!(events.is_sorted_by_key(|event| event.mono_ns));

    let other = vm.spawn("true", [""; 0], lifecycle()).unwrap();
    let other = all(&other.observer().unwrap()).await;
    assert_ne!(other[0].key, Some(key));
}

#[tokio::test]
async fn a_death_by_signal_is_told_by_its_number() {
    let vm = vm().await;
    let process = vm.spawn("sleep", ["600"], lifecycle()).unwrap();
    process.kill();
    let events = all(&process.observer().unwrap()).await;
    assert_eq!(events[1].kind, Kind::Exited { exit_code: None, signal: Some(9) });
    assert_eq!(events[1].kind.folded_code(), Some(-9));
}

#[tokio::test]
async fn the_exit_is_queued_before_wait_returns() {
    let vm = vm().await;
    for _ in 0..300 {
        let process = vm.spawn("true", [""; 0], lifecycle()).unwrap();
        let events = process.observer().unwrap();
        within(vm.wait_process(process.pid())).await.unwrap();
        let found: Vec<_> = std::iter::from_fn(|| events.try_recv()).collect();
        assert!(kinds(&found).contains(&"exited"), "{found:?}");
    }
}

#[tokio::test]
async fn what_does_not_start_has_no_events() {
    let vm = vm().await;
    let process = vm.spawn("no-such-cmd-zz", [""; 0], lifecycle()).unwrap();
    assert_eq!(all(&process.observer().unwrap()).await, []);
    within(process.wait()).await.unwrap_err();
}

#[tokio::test]
async fn who_asked_for_nothing_is_told_nothing() {
    let vm = vm().await;
    let process = vm.spawn("true", [""; 0], SpawnOptions::new()).unwrap();
    assert!(process.observer().is_none());
    let process = vm.spawn("true", [""; 0], SpawnOptions::new().observe(ObserverConfig::default())).unwrap();
    assert!(process.observer().is_none());
    let error = within(vm.observe(&ObserverConfig::default())).await.unwrap_err();
    assert_eq!(error.code(), Code::INVALID_ARGUMENT);
}

#[tokio::test]
async fn a_whole_vm_is_observed_with_what_runs_already() {
    let vm = vm().await;
    let old = vm.spawn("sh", ["-c", "echo up; read line"], SpawnOptions::new()).unwrap();
    said(&old, "up").await;
    let events = within(vm.observe(&ObserverConfig::lifecycle())).await.unwrap();
    let new = vm.spawn("true", [""; 0], SpawnOptions::new()).unwrap();
    within(new.wait()).await.unwrap();
    old.close_stdin();
    within(old.wait()).await.unwrap();
    within(vm.exec("exit 3", ExecOptions::new())).await.unwrap();
    let found = events.drain();
    assert_eq!(kinds(&found), ["started", "started", "exited", "exited", "started", "exited"]);
    let pids: Vec<_> = found.iter().map(|event| event.pid.unwrap()).collect();
    assert_eq!(pids[..4], [old.pid(), new.pid(), new.pid(), old.pid()]);
    assert_eq!(pids[4], pids[5]);
    assert_eq!(found[0].kind, Kind::Started { adopted: true });
    assert_eq!(found[5].kind.folded_code(), Some(3));

    within(vm.dispose_with_grace(Duration::from_secs(30))).await.unwrap();
    assert_eq!(kinds(&all_left(&events).await), ["complete"]);
}

async fn all_left(events: &ObserverSubscriber) -> Vec<ObserverEvent> {
    let mut found = Vec::new();
    while let Some(event) = within(events.recv()).await {
        found.push(event);
    }
    found
}

#[tokio::test]
async fn subscribers_read_for_themselves() {
    let vm = vm().await;
    let process = vm.spawn("true", [""; 0], lifecycle()).unwrap();
    let (one, other) = (process.observer().unwrap(), process.observer().unwrap());
    let found = all(&one).await;
    assert_eq!(all(&other).await, found);
    assert_eq!(all(&one.resubscribe()).await, found);
    assert_eq!(
        one.recv_timeout(Duration::from_secs(60)).await,
        None,
        "the end is reached while the handle lives"
    );
}

#[tokio::test]
async fn stop_wakes_who_waits_and_leaves_what_is_queued() {
    let vm = vm().await;
    let process = vm.spawn("sh", ["-c", "echo up; read line"], lifecycle()).unwrap();
    said(&process, "up").await;
    let events = process.observer().unwrap();
    let started = within(events.recv()).await.unwrap();
    let again = events.resubscribe();
    let (end, ()) = within(async { tokio::join!(biased; events.recv(), async { events.stop() }) }).await;
    assert_eq!(end, None);
    events.stop();
    assert_eq!(events.recv_timeout(Duration::from_millis(1)).await, None);

    again.stop();
    assert_eq!(all(&again).await, [started], "what is queued stays");
    process.close_stdin();
    within(process.wait()).await.unwrap();
    assert_eq!(all(&process.observer().unwrap()).await.len(), 1, "it ended with its last subscriber");
}

#[tokio::test]
async fn waiting_for_an_event_takes_no_longer_than_asked() {
    let vm = vm().await;
    let events = within(vm.observe(&ObserverConfig::lifecycle())).await.unwrap();
    assert_eq!(within(events.recv_timeout(Duration::from_millis(5))).await, None);
    vm.spawn("true", [""; 0], SpawnOptions::new()).unwrap();
    assert_eq!(within(events.recv_timeout(Duration::from_secs(50))).await.unwrap().kind.as_str(), "started");
}

#[tokio::test]
async fn an_observation_ends_with_its_vm() {
    let vm = vm().await;
    let process = vm.spawn("sleep", ["600"], lifecycle()).unwrap();
    let (own, whole) =
        (process.observer().unwrap(), within(vm.observe(&ObserverConfig::lifecycle())).await.unwrap());
    assert_eq!(within(own.recv()).await.unwrap().kind.as_str(), "started");
    within(vm.dispose()).await.unwrap();
    assert_eq!(all_left(&own).await, []);
    assert!(kinds(&all_left(&whole).await).iter().all(|kind| *kind == "started"));
    within(vm.observe(&ObserverConfig::lifecycle())).await.unwrap_err();
}

#[tokio::test]
async fn a_vm_has_so_many_observers_at_once_and_no_more() {
    let vm = vm().await;
    let mut observers = Vec::new();
    for _ in 0..64 {
        observers.push(within(vm.observe(&ObserverConfig::lifecycle())).await.unwrap());
    }
    let error = within(vm.observe(&ObserverConfig::lifecycle())).await.unwrap_err();
    assert_eq!(error.code(), Code::RESOURCE_EXHAUSTED);
    observers.pop();
    within(vm.observe(&ObserverConfig::lifecycle())).await.unwrap();
}

#[tokio::test]
async fn the_matrix_says_what_this_host_can_observe() {
    let vm = vm().await;
    let tree = within(vm.observer_capabilities(TraceScope::LaunchedProcessTree)).await.unwrap();
    assert!(tree.is_supported(EventCategory::Lifecycle));
    let categories: Vec<_> = tree.categories.iter().map(|cell| cell.category).collect();
    assert_eq!(categories, EventCategory::ALL);
    for cell in &tree.categories {
        let exact = cell.support == CapabilitySupport::Supported;
        assert_eq!(cell.reason.is_empty(), exact, "what is missing has a reason: {cell:?}");
        assert_eq!(cell.backend.is_none(), cell.support == CapabilitySupport::Unavailable);
    }
}

#[tokio::test]
async fn who_wants_it_exact_is_refused_where_it_is_not() {
    let vm = vm().await;
    let tree = within(vm.observer_capabilities(TraceScope::LaunchedProcessTree)).await.unwrap();
    for category in EventCategory::ALL {
        let config = ObserverConfig::with_categories([*category]).require_exact(true);
        let observed = within(vm.observe(&config)).await;
        let process = vm.spawn("true", [""; 0], SpawnOptions::new().observe(config)).unwrap();
        let ran = within(process.wait()).await;
        if tree.is_supported(*category) {
            observed.unwrap();
            ran.unwrap();
        } else {
            assert_eq!(observed.unwrap_err().code(), Code::UNSUPPORTED);
            assert_eq!(ran.unwrap_err().code(), Code::UNSUPPORTED);
        }
    }
}
