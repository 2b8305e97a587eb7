//! The types as JSON: defaults, casing, what is tolerated and what is refused.

use serde_json::{Value, json};

use super::NOW;
use crate::plugin::{
    PluginError,
    monitor::{
        MonitorArm, MonitorEvent, MonitorLimits, MonitorRestart, MonitorSnapshot, MonitorSpec, MonitorState,
        MonitorStatus, MonitorStream, MonitorUpdateBatch, MonitorWakePolicy, session::Session,
    },
};

fn spec(value: Value) -> MonitorSpec {
    serde_json::from_value(value).unwrap()
}

#[test]
fn a_spec_has_the_documented_defaults_in_rust_and_in_json() {
    let written = json!({
        "id": "a", "command": "c", "cwd": null, "env": {}, "persistent": false, "timeout_ms": 300_000,
        "arm_on": "manual", "wake_policy": "queue_turn", "restart_on_restore": false, "restart": "never",
        "max_restarts": 10, "backoff_ms": 1000, "stop_signal": "SIGTERM", "stop_grace_ms": 5000,
        "wake_on_exit": true, "max_line_bytes": 16_384,
    });
    assert_eq!(serde_json::to_value(MonitorSpec::new("a", "c")).unwrap(), written);
    assert_eq!(spec(json!({"id": "a", "command": "c"})), MonitorSpec::new("a", "c"));
    assert_eq!(spec(json!({})), MonitorSpec::default());
    assert_eq!(spec(written), MonitorSpec::new("a", "c"));
}

#[test]
fn values_are_snake_case_and_unknown_fields_are_tolerated() {
    let spec = spec(json!({
        "id": "a", "command": "c", "arm_on": "session_start", "wake_policy": "notify", "restart": "on_failure",
        "stop_signal": "SIGINT", "of_a_later_version": [1],
    }));
    assert_eq!((spec.arm_on, spec.wake_policy), (MonitorArm::SessionStart, MonitorWakePolicy::Notify));
    assert_eq!((spec.restart, spec.stop_signal.number()), (MonitorRestart::OnFailure, 2));
    assert_eq!(serde_json::to_value(MonitorRestart::Always).unwrap(), "always");
    for (state, text) in [
        (MonitorState::Idle, "idle"),
        (MonitorState::Running, "running"),
        (MonitorState::Stopped, "stopped"),
        (MonitorState::Exited, "exited"),
        (MonitorState::Failed, "failed"),
    ] {
        assert_eq!(serde_json::to_value(state).unwrap(), text);
    }
    for wrong in [json!({"restart": "onFailure"}), json!({"stop_signal": "SIGNOTHING"}), json!({"id": 1})] {
        serde_json::from_value::<MonitorSpec>(wrong).unwrap_err();
    }
}

#[test]
fn a_status_is_read_with_its_old_name_of_the_state_and_without_what_is_new() {
    let old = json!({"spec": {"id": "a", "command": "c"}, "armed": true, "run_state": "exited", "zz": 1});
    let status: MonitorStatus = serde_json::from_value(old).unwrap();
    assert_eq!((status.state, status.armed, status.run_id), (MonitorState::Exited, true, 0));
    let written = serde_json::to_value(&status).unwrap();
    assert_eq!(written["state"], "exited");
    let keys: Vec<&str> = written.as_object().unwrap().keys().map(String::as_str).collect();
    let mut expected = [
        "spec",
        "armed",
        "state",
        "last_event",
        "last_error",
        "last_exit_status",
        "last_signal",
        "event_count",
        "dropped_count",
        "run_id",
        "pid",
        "started_at_ms",
        "restarts",
    ];
    expected.sort_unstable();
    assert_eq!(keys, expected);
}

#[test]
fn an_event_and_the_batches_have_the_documented_fields() {
    let old = json!({"sequence": 1, "monitor_id": "a", "message": "m"});
    let event: MonitorEvent = serde_json::from_value(old).unwrap();
    assert_eq!((event.stream, event.truncated), (MonitorStream::Stdout, false));
    let written = serde_json::to_value(&event).unwrap();
    assert_eq!(
        written,
        json!({"sequence": 1, "monitor_id": "a", "message": "m", "queue_turn_input": null, "run_id": 0,
               "stream": "stdout", "timestamp_ms": 0, "truncated": false})
    );
    let snapshot = json!({"revision": 1, "active_count": 0, "monitors": []});
    let read: MonitorSnapshot = serde_json::from_value(snapshot.clone()).unwrap();
    assert_eq!(serde_json::to_value(read).unwrap(), snapshot);
    let batch = json!({
        "revision": 1, "active_count": 0, "events": [], "dropped": {"a": 2},
        "wakes": [{"monitor_id": "a", "text": "t", "through_sequence": 3, "dropped": 1}],
    });
    let read: MonitorUpdateBatch = serde_json::from_value(batch.clone()).unwrap();
    assert_eq!(serde_json::to_value(read).unwrap(), batch);
}

#[test]
fn what_is_out_of_range_or_blank_is_refused_with_the_field() {
    let refused = |change: fn(&mut MonitorSpec)| {
        let mut spec = MonitorSpec::new("a", "c");
        change(&mut spec);
        match Session::new(MonitorLimits::default()).start(spec, NOW) {
            Err(PluginError::Invalid { field, .. }) => field,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(refused(|spec| spec.id = " ".to_owned()), "id");
    assert_eq!(refused(|spec| spec.id = "web:a".to_owned()), "id");
    assert_eq!(refused(|spec| spec.id = "a b".to_owned()), "id");
    assert_eq!(refused(|spec| spec.command = "\t\n".to_owned()), "command");
    assert_eq!(refused(|spec| spec.timeout_ms = 0), "timeout_ms");
    assert_eq!(refused(|spec| spec.timeout_ms = 3_600_001), "timeout_ms");
    assert_eq!(refused(|spec| spec.backoff_ms = 3_600_001), "backoff_ms");
    assert_eq!(refused(|spec| spec.stop_grace_ms = 3_600_001), "stop_grace_ms");
    assert_eq!(refused(|spec| spec.max_line_bytes = 3), "max_line_bytes");
    assert_eq!(refused(|spec| spec.max_line_bytes = 262_145), "max_line_bytes");
    let accepted = |change: fn(&mut MonitorSpec)| {
        let mut spec = MonitorSpec::new("aZ0._-", "c");
        change(&mut spec);
        Session::new(MonitorLimits::default()).start(spec, NOW).unwrap();
    };
    accepted(|spec| (spec.timeout_ms, spec.max_line_bytes) = (1, 4));
    accepted(|spec| (spec.timeout_ms, spec.max_line_bytes) = (3_600_000, 262_144));
    accepted(|spec| (spec.persistent, spec.timeout_ms) = (true, 0));
}
