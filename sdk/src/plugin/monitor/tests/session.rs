//! What follows from what is asked of a session, one rule at a time.

use std::time::Duration;

use super::{NOW, exit, line, ready, run, session, small, texts, write};
use crate::plugin::{
    PluginError,
    monitor::{
        MonitorArm, MonitorLimits, MonitorRestart, MonitorSpec, MonitorState, MonitorStream,
        lifecycle::{End, Step},
        session::Session,
    },
};

fn spec(id: &str) -> MonitorSpec {
    MonitorSpec::new(id, "true")
}

#[test]
fn an_id_is_seen_with_its_owner_unless_that_is_the_plugin_itself() {
    let mut session = session();
    let owners = [None, Some(""), Some("monitor"), Some("web")];
    let specs =
        owners.iter().enumerate().map(|(n, owner)| (owner.map(str::to_owned), spec(&format!("m{n}"))));
    session.register(specs.collect(), NOW).unwrap();
    let ids: Vec<String> = session.snapshot().monitors.into_iter().map(|status| status.spec.id).collect();
    assert_eq!(ids, ["m0", "m1", "m2", "web:m3"]);
    session.start(spec("web:m3"), NOW).unwrap();
    assert_eq!(session.status("web:m3").unwrap().state, MonitorState::Running);
    session.start(spec("web:new"), NOW).unwrap_err();
    let bad = vec![(None, spec("good")), (Some("a b".to_owned()), spec("bad"))];
    session.register(bad, NOW).unwrap_err();
    session.status("good").unwrap_err();
}

#[test]
fn one_more_monitor_than_there_may_be_is_refused_with_the_limit() {
    let mut session = ready(MonitorLimits { monitors: 2, ..small() });
    session.start(spec("a"), NOW).unwrap();
    session.register(vec![(None, spec("a")), (None, spec("b"))], NOW).unwrap();
    let error = session.start(spec("c"), NOW).unwrap_err();
    assert!(matches!(error, PluginError::ResourceLimit { limit: 2, observed: 2, .. }), "{error}");
    assert!(session.stop("b").is_ok() && session.forget("b"));
    session.start(spec("c"), NOW).unwrap();
}

#[test]
fn news_of_an_older_run_is_ignored() {
    let mut session = session();
    let first = run(&mut session, spec("a"));
    exit(&mut session, "a", first, 0);
    let second = run(&mut session, spec("a"));
    assert_eq!((first, second), (1, 2));
    write(&mut session, "a", first, [1]);
    session.spawned("a", first, 7);
    exit(&mut session, "a", first, 9);
    let status = session.status("a").unwrap();
    assert_eq!((status.state, status.pid, status.event_count), (MonitorState::Running, None, 1));
}

#[test]
fn a_flood_drops_its_own_oldest_events_and_nobody_elses() {
    let mut session = session();
    let quiet = run(&mut session, spec("quiet"));
    write(&mut session, "quiet", quiet, [1]);
    let flood = run(&mut session, spec("flood"));
    write(&mut session, "flood", flood, 0..100);
    let batch = session.take_updates(None);
    let expected = ["1", "92 events dropped", "92", "93", "94", "95", "96", "97", "98", "99"];
    assert_eq!(texts(&batch.events), expected);
    let gap = &batch.events[1];
    assert_eq!((gap.sequence, gap.stream, gap.monitor_id.as_str()), (93, MonitorStream::Lifecycle, "flood"));
    assert_eq!(batch.dropped, [("flood".to_owned(), 92)].into());
    assert_eq!(session.status("flood").unwrap().dropped_count, 92);
    let next = session.take_updates(None);
    assert!(next.events.is_empty() && next.dropped.is_empty());
    write(&mut session, "flood", flood, 100..104);
    assert_eq!(
        texts(&session.take_updates(None).events),
        ["100", "101", "102", "103"],
        "what was taken is no loss"
    );
}

#[test]
fn only_what_was_received_is_taken() {
    let mut session = session();
    let run_id = run(&mut session, spec("a"));
    write(&mut session, "a", run_id, 1..=4);
    assert_eq!(session.take_updates(None).events.len(), 4);
    assert_eq!(texts(&session.take_updates(Some(2)).events), ["3", "4"]);
    assert_eq!(texts(&session.take_updates(Some(2)).events), ["3", "4"], "again, as often as wanted");
    write(&mut session, "a", run_id, [5]);
    assert_eq!(texts(&session.take_updates(None).events), ["5"]);
}

#[test]
fn lines_behind_the_returned_text_wake_at_once_after_the_acknowledgement() {
    let mut session = session();
    let run_id = run(&mut session, spec("a"));
    write(&mut session, "a", run_id, [1]);
    session.lines("a", run_id, MonitorStream::Stderr, [line("error".to_owned())], NOW);
    let first = session.take_updates(None).wakes.remove(0);
    assert_eq!((first.text.as_str(), first.through_sequence), ("Monitor event \"a\": 1", 1));
    write(&mut session, "a", run_id, [2]);
    session.ack(&[("a".to_owned(), Some(first.through_sequence))]).unwrap();
    let second = session.take_updates(None).wakes.remove(0);
    assert_eq!(second.text, "Monitor event \"a\": 2");
    write(&mut session, "a", run_id, [3]);
    session.ack(&[("a".to_owned(), None)]).unwrap();
    assert_eq!(session.take_updates(None).wakes.remove(0).text, "Monitor event \"a\": 3");
    session.ack(&[("a".to_owned(), Some(u64::MAX))]).unwrap();
    assert!(session.take_updates(None).wakes.is_empty());
    session.ack(&[("b".to_owned(), None)]).unwrap_err();
}

#[test]
fn no_acknowledgement_takes_away_what_was_not_returned() {
    let mut session = session();
    let run_id = run(&mut session, spec("a"));
    write(&mut session, "a", run_id, [1]);
    session.ack(&[("a".to_owned(), Some(u64::MAX))]).unwrap();
    session.ack(&[("a".to_owned(), None)]).unwrap();
    assert_eq!(session.take_updates(None).wakes.len(), 1);
}

#[test]
fn a_wake_keeps_the_last_lines_and_counts_the_others() {
    let mut session = session();
    let run_id = run(&mut session, spec("a"));
    write(&mut session, "a", run_id, 1..=9);
    let wake = session.take_updates(None).wakes.remove(0);
    assert_eq!(wake.text, "Monitor event \"a\": (4 earlier lines dropped)\n5\n6\n7\n8\n9");
    write(&mut session, "a", run_id, 10..=17);
    session.ack(&[("a".to_owned(), Some(wake.through_sequence))]).unwrap();
    let wake = session.take_updates(None).wakes.remove(0);
    assert_eq!((wake.dropped, wake.through_sequence), (3, 17), "10, 11 and 12");
}

#[test]
fn a_start_of_what_runs_with_an_older_spec_restarts_it() {
    let mut session = session();
    let first = run(&mut session, spec("a"));
    let other = MonitorSpec::new("a", "false");
    session.register(vec![(None, other.clone())], NOW).unwrap();
    assert!(!session.is_stopping("a", first), "it gets the new spec with its next run");
    session.start(other.clone(), NOW).unwrap();
    assert!(session.is_stopping("a", first));
    exit(&mut session, "a", first, 0);
    assert_eq!(session.next("a"), Step::Run { run_id: 2 });
    session.start(other, NOW).unwrap();
    assert!(!session.is_stopping("a", 2));
}

#[test]
fn a_stop_is_sticky_and_a_start_behind_it_follows_it() {
    let mut session = session();
    let mut first = spec("a");
    first.arm_on = MonitorArm::SessionStart;
    let run_id = run(&mut session, first.clone());
    session.stop("a").unwrap();
    assert!(session.is_stopping("a", run_id));
    session.start(first.clone(), NOW).unwrap();
    session.ended("a", run_id, &End::Signalled { signal: "SIGTERM".to_owned() }, NOW);
    assert_eq!(session.next("a"), Step::Run { run_id: 2 }, "the stop was heard, and then the start");
    session.stop("a").unwrap();
    exit(&mut session, "a", 2, 0);
    session.register(vec![(None, first)], NOW).unwrap();
    assert_eq!((session.next("a"), session.status("a").unwrap().state), (Step::Rest, MonitorState::Stopped));
    session.stop("a").unwrap();
    session.ready(NOW);
    assert_eq!(session.next("a"), Step::Rest);
}

#[test]
fn what_was_never_started_can_be_stopped_for_good() {
    let mut session = Session::new(small());
    let mut early = spec("a");
    early.arm_on = MonitorArm::SessionStart;
    session.register(vec![(None, early)], NOW).unwrap();
    session.stop("a").unwrap();
    session.ready(NOW);
    assert_eq!((session.next("a"), session.status("a").unwrap().state), (Step::Rest, MonitorState::Stopped));
}

#[test]
fn waits_before_restarts_grow_up_to_a_minute() {
    let mut session = session();
    let mut spec = spec("a");
    (spec.restart, spec.max_restarts, spec.backoff_ms) = (MonitorRestart::Always, 20, 1000);
    let mut run_id = run(&mut session, spec);
    let mut waits = Vec::new();
    loop {
        exit(&mut session, "a", run_id, 0);
        match session.next("a") {
            Step::BackOff(wait) => waits.push(wait.as_secs()),
            step => break assert_eq!(step, Step::Rest),
        }
        assert!(session.status("a").unwrap().armed);
        session.backed_off("a", NOW);
        run_id += 1;
    }
    assert_eq!(waits[..8], [1, 2, 4, 8, 16, 32, 60, 60]);
    assert_eq!(waits.len(), 20);
    let status = session.status("a").unwrap();
    assert_eq!((status.armed, status.state), (false, MonitorState::Exited));
    assert_eq!(status.last_event.as_deref(), Some("Monitor gave up after 20 restarts"));
}

#[test]
fn what_waits_for_its_restart_when_the_session_ends_waits_for_the_next_one() {
    let mut session = session();
    let mut spec = spec("a");
    (spec.restart, spec.restart_on_restore) = (MonitorRestart::Always, true);
    let run_id = run(&mut session, spec);
    exit(&mut session, "a", run_id, 0);
    assert!(matches!(session.next("a"), Step::BackOff(_)));
    session.leave();
    session.backed_off("a", NOW);
    assert_eq!(session.next("a"), Step::Rest);
    assert!(session.close() && session.take_unowned().is_empty());
    let mut next = Session::new(small());
    next.restore(session.kept(), NOW);
    next.ready(NOW);
    assert_eq!(next.next("a"), Step::Run { run_id: run_id + 1 });
}

#[test]
fn a_first_wait_may_be_longer_than_a_minute_and_then_does_not_grow() {
    let mut session = session();
    let mut spec = spec("a");
    (spec.restart, spec.backoff_ms) = (MonitorRestart::OnFailure, 120_000);
    let run_id = run(&mut session, spec);
    exit(&mut session, "a", run_id, 1);
    assert_eq!(session.next("a"), Step::BackOff(Duration::from_secs(120)));
    session.backed_off("a", NOW);
    exit(&mut session, "a", run_id + 1, 1);
    assert_eq!(session.next("a"), Step::BackOff(Duration::from_secs(120)));
}

#[test]
fn a_new_session_has_what_was_not_taken_and_starts_what_is_to_go_on() {
    let mut old = session();
    for (id, restarts) in [("goes-on", true), ("ends", false)] {
        let mut spec = spec(id);
        spec.restart_on_restore = restarts;
        let run_id = run(&mut old, spec);
        write(&mut old, id, run_id, [1]);
    }
    let done = run(&mut old, spec("done"));
    exit(&mut old, "done", done, 4);
    old.take_updates(None);
    let run_id = old.status("ends").unwrap().run_id;
    write(&mut old, "ends", run_id, [2]);
    old.take_updates(Some(3));
    let text = serde_json::to_string(&old.kept()).unwrap();

    let mut new = Session::new(small());
    new.restore(serde_json::from_str(&text).unwrap(), NOW);
    let state = |session: &Session, id: &str| {
        let status = session.status(id).unwrap();
        (status.state, status.armed)
    };
    assert_eq!(state(&new, "goes-on"), (MonitorState::Idle, true));
    assert_eq!(state(&new, "ends"), (MonitorState::Idle, false));
    assert_eq!(state(&new, "done"), (MonitorState::Failed, false));
    new.ready(NOW);
    assert_eq!(new.next("goes-on"), Step::Run { run_id: 2 });
    assert_eq!(new.next("ends"), Step::Rest);
    let batch = new.take_updates(None);
    let interrupted = "Monitor interrupted: its session ended";
    assert_eq!(texts(&batch.events), ["2", interrupted, interrupted]);
    assert!(
        batch.events[1].sequence > batch.events[0].sequence + 1000,
        "its numbers may have been told already"
    );
    let text = |id: &str| batch.wakes.iter().find(|wake| wake.monitor_id == id).unwrap().text.clone();
    assert_eq!(text("ends"), format!("Monitor event \"ends\": 1\n2\n{interrupted}"));
    assert_eq!(text("done"), "Monitor event \"done\": Monitor failed with status 4");
}

#[test]
fn a_session_that_ended_in_order_goes_on_with_the_next_number() {
    let mut old = session();
    let run_id = run(&mut old, spec("a"));
    write(&mut old, "a", run_id, [1]);
    old.leave();
    assert!(!old.close(), "it still runs");
    write(&mut old, "a", run_id, [2]);
    session_end(&mut old, run_id);
    assert!(old.close());
    assert!(matches!(old.start(spec("a"), NOW), Err(PluginError::ShutDown)));
    let mut new = Session::new(small());
    new.restore(old.kept(), NOW);
    let events = new.take_updates(None).events;
    assert_eq!(texts(&events), ["1", "2", "Monitor interrupted: its session ended"]);
    assert_eq!(events.iter().map(|event| event.sequence).collect::<Vec<_>>(), [1, 2, 3]);
}

/// What a run that is ended with its session comes to.
fn session_end(session: &mut Session, run_id: u64) {
    assert!(session.is_stopping("a", run_id));
    session.ended("a", run_id, &End::Signalled { signal: "SIGTERM".to_owned() }, NOW);
}
