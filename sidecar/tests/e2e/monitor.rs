//! Monitors: what is told of a command, from its first line to its end.

use agentvm_sdk::{
    AgentOs,
    plugin::{
        PluginHost,
        monitor::{
            Logs, LogsArgs, MonitorEvent, MonitorFactory, MonitorId, MonitorRestart, MonitorSpec,
            MonitorState, MonitorStatus, MonitorStream, MonitorUpdateBatch, MonitorWakePolicy, RegisterSpecs,
            RegisterSpecsArgs, RegisteredSpec, Start, StartArgs, Status, StatusArgs, Stop, TakeUpdates,
            TakeUpdatesArgs, Wait, WaitArgs,
        },
    },
};

use crate::support::{DEADLINE, until, vm, within};

pub(crate) async fn host(vm: &AgentOs) -> PluginHost {
    let host = PluginHost::builder(vm, "session").plugin(MonitorFactory::new());
    within(host.start()).await.expect("the session begins")
}

/// A monitor that runs until it is told otherwise.
pub(crate) fn lasting(id: &str, command: &str) -> MonitorSpec {
    let mut spec = MonitorSpec::new(id, command);
    spec.persistent = true;
    spec
}

pub(crate) async fn start(host: &PluginHost, spec: MonitorSpec) -> MonitorStatus {
    within(host.invoke_typed::<Start>(StartArgs { spec })).await.expect("it is started")
}

pub(crate) async fn stop(host: &PluginHost, id: &str) -> MonitorStatus {
    within(host.invoke_typed::<Stop>(MonitorId { id: id.to_owned() })).await.expect("it is stopped")
}

pub(crate) async fn take(host: &PluginHost) -> MonitorUpdateBatch {
    within(host.invoke_typed::<TakeUpdates>(TakeUpdatesArgs::default())).await.expect("the session goes on")
}

pub(crate) async fn status(host: &PluginHost, id: &str) -> MonitorStatus {
    let all = within(host.invoke_typed::<Status>(StatusArgs {})).await.expect("the session goes on");
    all.monitors.into_iter().find(|status| status.spec.id == id).expect("it is known")
}

/// Waits until a monitor has ended for good.
pub(crate) async fn ended(host: &PluginHost, id: &str) -> MonitorStatus {
    let timeout_ms = u64::try_from(DEADLINE.as_millis()).unwrap();
    let args = WaitArgs { id: id.to_owned(), timeout_ms };
    let waited = host.invoke_typed::<Wait>(args).await.expect("it is known");
    assert!(!waited.timed_out, "{waited:?}");
    waited.status
}

/// Waits for an event, and returns all up to it.
pub(crate) async fn events_until(
    host: &PluginHost,
    mut last: impl FnMut(&MonitorEvent) -> bool,
) -> Vec<MonitorEvent> {
    let mut events = Vec::new();
    loop {
        let seen = host.revision();
        let new = take(host).await.events;
        let found = new.iter().any(&mut last);
        events.extend(new);
        if found {
            return events;
        }
        within(host.changed(seen)).await;
    }
}

pub(crate) async fn said(host: &PluginHost, id: &str, line: &str) {
    events_until(host, |event| event.monitor_id == id && event.message == line).await;
}

pub(crate) fn texts(events: &[MonitorEvent]) -> Vec<&str> {
    events.iter().map(|event| event.message.as_str()).collect()
}

#[tokio::test]
async fn lines_are_events_and_those_of_standard_output_wake() {
    let vm = vm().await;
    let host = host(&vm).await;
    let status = start(&host, MonitorSpec::new("build", "echo one; echo two; exit 4")).await;
    assert_eq!((status.state, status.run_id, status.armed), (MonitorState::Running, 1, true));
    let status = ended(&host, "build").await;
    assert_eq!((status.state, status.armed, status.pid), (MonitorState::Failed, false, None));
    assert_eq!(status.last_exit_status, Some(4));
    assert_eq!(status.last_error.as_deref(), Some("monitor exited with status 4"));
    assert_eq!(status.event_count, 3);
    let batch = take(&host).await;
    assert_eq!(texts(&batch.events), ["one", "two", "Monitor failed with status 4"]);
    let numbers: Vec<u64> = batch.events.iter().map(|event| event.sequence).collect();
    assert_eq!(numbers, [1, 2, 3]);
    assert_eq!(batch.events[0].queue_turn_input.as_deref(), Some("Monitor event \"build\": one"));
    assert_eq!(batch.events[2].stream, MonitorStream::Lifecycle);
    let [wake] = &batch.wakes[..] else { panic!("{batch:?}") };
    assert_eq!(wake.text, "Monitor event \"build\": one\ntwo\nMonitor failed with status 4");
    assert_eq!((wake.through_sequence, wake.dropped, batch.active_count), (3, 0, 0));
    let next = take(&host).await;
    assert!(next.events.is_empty());
    assert_eq!(next.wakes, batch.wakes, "until it is acknowledged");
    let args = LogsArgs { id: "build".to_owned(), from_sequence: 2, max: 1 };
    let logs = within(host.invoke_typed::<Logs>(args)).await.unwrap();
    assert_eq!(texts(&logs.events), ["two"], "also what was taken");
}

#[tokio::test]
async fn each_end_has_its_own_text_and_state_and_is_told_once() {
    let vm = vm().await;
    let host = host(&vm).await;
    let mut slow = MonitorSpec::new("slow", "echo on; sleep 600");
    slow.timeout_ms = 300;
    let mut nowhere = MonitorSpec::new("nowhere", "true");
    nowhere.cwd = Some("/no/such/folder".to_owned());
    let specs = [
        (MonitorSpec::new("fine", "true"), MonitorState::Exited, "Monitor exited", None),
        (
            MonitorSpec::new("c76b", "no-such-zz"),
            MonitorState::Failed,
            "Monitor failed with status 127",
            Some("monitor exited with status 127"),
        ),
        (
            MonitorSpec::new("shot", "kill -SEGV $$"),
            MonitorState::Failed,
            "Monitor killed by SIGSEGV",
            Some("monitor killed by SIGSEGV"),
        ),
        (slow, MonitorState::Failed, "Monitor timed out after 300ms", Some("monitor timed out after 300ms")),
    ];
    for (spec, state, text, error) in specs {
        let id = spec.id.clone();
        start(&host, spec).await;
        let status = ended(&host, &id).await;
        assert_eq!((status.state, status.last_error.as_deref()), (state, error), "{id}");
        let events = take(&host).await.events;
        let ends: Vec<_> = events.iter().filter(|event| event.stream == MonitorStream::Lifecycle).collect();
        let [end] = &ends[..] else { panic!("{id}: {events:?}") };
        assert_eq!((end.message.as_str(), end.run_id), (text, 1), "{id}");
        assert_eq!(end.queue_turn_input, Some(format!("Monitor event \"{id}\": {text}")));
    }
    assert_eq!(status(&host, "shot").await.last_signal.as_deref(), Some("SIGSEGV"));
    assert_eq!(status(&host, "shot").await.last_exit_status, None);

    start(&host, nowhere).await;
    let status = ended(&host, "nowhere").await;
    assert_eq!(status.state, MonitorState::Failed);
    let events = take(&host).await.events;
    let end = events.iter().find(|event| event.stream == MonitorStream::Lifecycle).unwrap();
    assert!(end.message.starts_with("Failed to start monitor: "), "{end:?}");
    assert!(end.message.contains("/no/such/folder"), "{end:?}");
    assert_eq!(status.last_error.as_deref(), Some(end.message.replace("Failed", "failed").as_str()));
}

#[tokio::test]
async fn c34_a_line_without_end_is_cut_and_the_next_one_is_whole() {
    let vm = vm().await;
    let host = host(&vm).await;
    start(&host, MonitorSpec::new("c34", "head -c 10485760 /dev/zero | tr '\\0' x; echo; echo next")).await;
    ended(&host, "c34").await;
    let events = take(&host).await.events;
    assert_eq!(events.len(), 3, "{:?}", texts(&events[1..]));
    assert!(events[0].truncated);
    assert_eq!(events[0].message, "x".repeat(16_384));
    assert_eq!(texts(&events[1..]), ["next", "Monitor exited"]);
    assert!(!events[1].truncated);
}

#[tokio::test]
async fn lines_end_as_programs_end_them_and_need_not_be_utf8() {
    let vm = vm().await;
    let host = host(&vm).await;
    start(&host, MonitorSpec::new("ends", r"printf 'a\r\n b \n\n10%%\r20%%\rbad \377\nlast'")).await;
    ended(&host, "ends").await;
    let events = take(&host).await.events;
    assert_eq!(texts(&events), ["a", "b", "10%", "20%", "bad \u{fffd}", "last", "Monitor exited"]);
}

#[tokio::test]
async fn c76_a_broken_monitor_shows_its_errors_and_they_do_not_wake() {
    let vm = vm().await;
    let host = host(&vm).await;
    start(&host, lasting("c76a", "while :; do no-such-zz; sleep 0.05; done")).await;
    let mut lines = 0;
    let events = events_until(&host, |event| {
        lines += u32::from(event.stream == MonitorStream::Stderr);
        lines >= 3
    });
    let events = events.await;
    assert!(events.iter().all(|event| event.message.contains("no-such-zz")), "{events:?}");
    assert!(events.iter().all(|event| event.queue_turn_input.is_none()));
    assert!(take(&host).await.wakes.is_empty());
    assert!(status(&host, "c76a").await.event_count >= 3);
    stop(&host, "c76a").await;
    assert!(take(&host).await.wakes.is_empty(), "an explicit stop does not wake");
}

#[tokio::test]
async fn the_policy_notify_wakes_nobody_and_an_end_need_not() {
    let vm = vm().await;
    let host = host(&vm).await;
    let mut silent = MonitorSpec::new("silent", "echo line; exit 1");
    silent.wake_policy = MonitorWakePolicy::Notify;
    let mut lines_only = MonitorSpec::new("lines", "echo line; exit 1");
    lines_only.wake_on_exit = false;
    start(&host, silent).await;
    start(&host, lines_only).await;
    ended(&host, "silent").await;
    ended(&host, "lines").await;
    let batch = take(&host).await;
    assert_eq!(batch.events.len(), 4);
    let [wake] = &batch.wakes[..] else { panic!("{batch:?}") };
    assert_eq!(wake.text, "Monitor event \"lines\": line");
}

#[tokio::test]
async fn restarts_follow_the_policy_up_to_the_limit_and_a_stop_ends_them() {
    let vm = vm().await;
    let host = host(&vm).await;
    let mut spec = MonitorSpec::new("again", "echo up; exit 7");
    spec.restart = MonitorRestart::OnFailure;
    (spec.max_restarts, spec.backoff_ms) = (3, 10);
    start(&host, spec.clone()).await;
    let last = ended(&host, "again").await;
    assert_eq!((last.state, last.restarts, last.run_id), (MonitorState::Failed, 3, 4));
    let events = take(&host).await.events;
    let failed = "Monitor failed with status 7";
    let told = ["up", failed, "up", failed, "up", failed, "up", failed, "Monitor gave up after 3 restarts"];
    assert_eq!(texts(&events), told);
    let runs: Vec<u64> = events.iter().map(|event| event.run_id).collect();
    assert_eq!(runs, [1, 1, 2, 2, 3, 3, 4, 4, 4]);

    spec.command = "true".to_owned();
    start(&host, spec.clone()).await;
    assert_eq!(ended(&host, "again").await.restarts, 0, "status 0 is no failure");

    (spec.id, spec.restart, spec.backoff_ms) = ("ever".to_owned(), MonitorRestart::Always, 3_600_000);
    start(&host, spec).await;
    let waits = |status: &MonitorStatus| status.armed && status.state == MonitorState::Exited;
    until("it waits for its restart", DEADLINE, || async { waits(&status(&host, "ever").await) }).await;
    let status = stop(&host, "ever").await;
    assert_eq!((status.state, status.armed), (MonitorState::Stopped, false));
}

#[tokio::test]
async fn a_start_of_what_runs_changes_nothing_unless_the_spec_is_another() {
    let vm = vm().await;
    let host = host(&vm).await;
    let first = start(&host, lasting("one", "echo first; sleep 600")).await;
    said(&host, "one", "first").await;
    let same = start(&host, lasting("one", "echo first; sleep 600")).await;
    assert_eq!((same.run_id, same.state), (first.run_id, MonitorState::Running));
    start(&host, lasting("one", "echo second; sleep 600")).await;
    let events = events_until(&host, |event| event.message == "second").await;
    assert_eq!(texts(&events), ["Monitor stopped", "second"]);
    assert_eq!(events.iter().map(|event| event.run_id).collect::<Vec<_>>(), [1, 2]);
}

#[tokio::test]
async fn monitors_of_session_start_start_with_nobody_polling_and_polling_starts_nothing() {
    let vm = vm().await;
    let host = host(&vm).await;
    let mut armed = lasting("armed", "sleep 4817");
    armed.arm_on = agentvm_sdk::plugin::monitor::MonitorArm::SessionStart;
    armed.env.insert("TOKEN".to_owned(), "secret".to_owned());
    let registered =
        |spec: MonitorSpec, plugin_id: &str| RegisteredSpec { plugin_id: Some(plugin_id.to_owned()), spec };
    let specs = vec![registered(armed, "web"), registered(lasting("manual", "sleep 4818"), "monitor")];
    let snapshot = within(host.invoke_typed::<RegisterSpecs>(RegisterSpecsArgs { specs })).await.unwrap();
    let ids: Vec<&str> = snapshot.monitors.iter().map(|status| status.spec.id.as_str()).collect();
    assert_eq!(ids, ["manual", "web:armed"]);
    until("it runs", DEADLINE, || async {
        let table = within(vm.all_processes()).await.unwrap();
        table.iter().any(|row| row.args.iter().any(|arg| arg.contains("4817")))
    })
    .await;
    for _ in 0..10 {
        take(&host).await;
    }
    assert_eq!(status(&host, "manual").await.state, MonitorState::Idle);
    let armed = status(&host, "web:armed").await;
    assert_eq!(armed.state, MonitorState::Running);
    assert_eq!(armed.spec.env["TOKEN"], "***", "its value is shown to nobody");
}
