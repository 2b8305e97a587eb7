//! Ways out of a run that are not the command's own: stops, deadlines, the end of the session, losses.

use std::time::Duration;

use agentvm_sdk::{
    AgentOs, AgentOsConfig, Isolation,
    plugin::{
        PluginError,
        monitor::{
            MonitorId, MonitorRestart, MonitorSpec, MonitorState, MonitorStream, Remove, Status, StatusArgs,
            Stop,
        },
    },
};

use crate::{
    monitor::{ended, host, lasting, said, start, status, stop, take, texts},
    support::{DEADLINE, kill, no_process_has_argument, until, vm, vm_with, within, within_limit},
};

/// Trees are found in another way where there are no namespaces.
const LEVELS: [Isolation; 3] = [Isolation::Sandbox, Isolation::Confined, Isolation::None];

#[tokio::test]
async fn a_stopped_tree_is_gone_whatever_it_did_to_get_away() {
    for isolation in LEVELS {
        let vm = vm_with(AgentOsConfig::new().isolation(isolation)).await;
        let host = host(&vm).await;
        let run_away = "setsid sh -c 'setsid sleep 4811 & sleep 4811' & (trap '' TERM HUP; sleep 4811) & ";
        for (id, rest) in [
            ("polite", "echo on; sleep 4811"),
            ("deaf", "trap '' TERM; echo on; while :; do sleep 4811; done"),
        ] {
            let mut spec = lasting(id, &format!("{run_away}{rest}"));
            spec.stop_grace_ms = 200;
            start(&host, spec).await;
            said(&host, id, "on").await;
            let status = stop(&host, id).await;
            assert_eq!((status.state, status.armed, status.pid), (MonitorState::Stopped, false, None));
            none_is_left(&vm, "4811").await;
            assert_eq!(texts(&take(&host).await.events), ["Monitor stopped"]);
            let again = stop(&host, id).await;
            assert_eq!(again.state, MonitorState::Stopped);
            assert!(take(&host).await.events.is_empty(), "a second stop is nothing");
        }
    }
}

#[tokio::test]
async fn nothing_of_a_tree_outlives_a_deadline_an_end_or_the_session() {
    for isolation in LEVELS {
        let vm = vm_with(AgentOsConfig::new().isolation(isolation)).await;
        let host = host(&vm).await;
        let mut late = MonitorSpec::new("late", "setsid sleep 4812 & echo on; sleep 4812");
        late.timeout_ms = 500;
        start(&host, late).await;
        ended(&host, "late").await;
        none_is_left(&vm, "4812").await;
        start(&host, MonitorSpec::new("over", "setsid sleep 4813 & exit 0")).await;
        ended(&host, "over").await;
        none_is_left(&vm, "4813").await;
        start(&host, lasting("on", "setsid sleep 4814 & echo on; sleep 4814")).await;
        said(&host, "on", "on").await;
        within(host.shutdown()).await.unwrap();
        none_is_left(&vm, "4814").await;
        let error = host.invoke_typed::<Status>(StatusArgs {}).await.unwrap_err();
        assert!(matches!(error, PluginError::ShutDown));
        within(host.shutdown()).await.unwrap();
    }
}

/// Now, and not only soon.
async fn none_is_left(vm: &AgentOs, argument: &str) {
    let table = within(vm.all_processes()).await.unwrap();
    let left =
        table.iter().filter(|row| row.exit_code.is_none() && row.args.iter().any(|arg| arg == argument));
    assert_eq!(left.count(), 0, "{table:#?}");
}

#[tokio::test]
async fn a_host_that_is_dropped_ends_what_runs() {
    let vm = vm().await;
    let host = host(&vm).await;
    start(&host, lasting("flood", "sleep 4815 & yes")).await;
    until("it floods", DEADLINE, || async { status(&host, "flood").await.event_count > 1000 }).await;
    drop(host);
    no_process_has_argument(&vm, "4815").await;
}

#[tokio::test]
async fn a_stop_whose_caller_has_gone_stops_all_the_same() {
    let vm = vm().await;
    let host = host(&vm).await;
    let mut spec = lasting("left", "trap '' TERM; echo on; while :; do sleep 0.05; done");
    spec.stop_grace_ms = 500;
    start(&host, spec).await;
    said(&host, "left", "on").await;
    let stop = host.invoke_typed::<Stop>(MonitorId { id: "left".to_owned() });
    tokio::select! {
        biased;
        stopped = stop => panic!("it does not listen, and has its grace: {stopped:?}"),
        () = std::future::ready(()) => {}
    }
    assert_eq!(ended(&host, "left").await.state, MonitorState::Stopped);
}

#[tokio::test]
async fn a_session_ends_though_a_monitor_waits_for_its_restart() {
    let vm = vm().await;
    let host = host(&vm).await;
    let mut spec = MonitorSpec::new("waits", "false");
    (spec.restart, spec.backoff_ms) = (MonitorRestart::OnFailure, 3_600_000);
    start(&host, spec).await;
    let waits = || async { status(&host, "waits").await.state == MonitorState::Failed };
    until("it waits for its restart", DEADLINE, waits).await;
    kill(vm.sidecar().pid().unwrap());
    within_limit(Duration::from_secs(5), host.shutdown()).await.unwrap();
}

#[tokio::test]
async fn a_stop_signal_and_its_grace_are_the_monitors_own() {
    let vm = vm().await;
    let host = host(&vm).await;
    let mut spec = lasting("own", "trap 'echo bye; exit 3' USR1; echo on; while :; do sleep 0.01; done");
    spec.stop_signal = "SIGUSR1".parse().unwrap();
    start(&host, spec).await;
    said(&host, "own", "on").await;
    let status = stop(&host, "own").await;
    assert_eq!((status.last_exit_status, status.last_signal), (Some(3), None));
    let mut events = take(&host).await.events;
    // The shell may tell of its sleep, which got the signal too.
    events.retain(|event| event.stream != MonitorStream::Stderr);
    assert_eq!(texts(&events), ["bye", "Monitor stopped"]);
}

#[tokio::test]
async fn a_removed_monitor_is_gone_with_all_it_ran() {
    let vm = vm().await;
    let host = host(&vm).await;
    start(&host, lasting("gone", "echo on; sleep 4816")).await;
    said(&host, "gone", "on").await;
    within(host.invoke_typed::<Remove>(MonitorId { id: "gone".to_owned() })).await.unwrap();
    no_process_has_argument(&vm, "4816").await;
    assert!(take(&host).await.wakes.is_empty());
    let error = within(host.invoke_typed::<Stop>(MonitorId { id: "gone".to_owned() })).await.unwrap_err();
    assert_eq!(error.to_string(), "monitor not found: gone");
    assert_eq!(start(&host, lasting("gone", "true")).await.run_id, 1, "its name is free");
}

#[tokio::test]
async fn a_lost_sidecar_is_told_as_the_end_of_every_run() {
    let vm = vm().await;
    let host = host(&vm).await;
    let mut spec = lasting("lost", "echo on; sleep 600");
    spec.restart = MonitorRestart::Always;
    start(&host, spec).await;
    said(&host, "lost", "on").await;
    kill(vm.sidecar().pid().unwrap());
    let status = ended(&host, "lost").await;
    assert_eq!((status.state, status.restarts), (MonitorState::Failed, 0));
    let events = take(&host).await.events;
    let [end] = &events[..] else { panic!("{events:?}") };
    assert!(end.message.starts_with("Monitor lost: sidecar exited"), "{end:?}");
    start(&host, lasting("lost", "true")).await;
    assert_eq!(ended(&host, "lost").await.state, MonitorState::Failed, "nothing runs without a VM");
    within_limit(Duration::from_secs(5), host.shutdown()).await.unwrap();
}

#[tokio::test]
async fn a_cancelled_task_is_told_as_the_end_of_its_run() {
    let vm = vm().await;
    let host = host(&vm).await;
    start(&host, lasting("left", "echo on; sleep 4819")).await;
    said(&host, "left", "on").await;
    let task = host.tasks().list_tasks().into_iter().find(|task| task.name == "monitor left").unwrap();
    host.tasks().cancel_managed_task(task.id).unwrap();
    assert_eq!(ended(&host, "left").await.state, MonitorState::Failed);
    no_process_has_argument(&vm, "4819").await;
    assert_eq!(texts(&take(&host).await.events), ["Monitor failed: its task ended early"]);
    start(&host, MonitorSpec::new("left", "true")).await;
    assert_eq!(ended(&host, "left").await.state, MonitorState::Exited, "it can be started again");
}
