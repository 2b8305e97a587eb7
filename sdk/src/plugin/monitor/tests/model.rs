//! Random starts, stops, exits, lines, polls, acknowledgements and restores, against what must hold after each of them.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::{NOW, exit, small, write};
use crate::plugin::monitor::{
    MonitorRestart, MonitorSpec, MonitorState, MonitorStream,
    lifecycle::{End, Step},
    session::Session,
    status::MonitorUpdateBatch,
};

const IDS: [&str; 3] = ["a", "b", "c"];

#[derive(Debug, Clone)]
enum Op {
    Start,
    StartOther,
    Stop,
    Exit(i32),
    Signalled,
    Lose,
    BackedOff,
    Lines(u64),
    /// Polls; the answer may be lost on its way.
    Take {
        received: bool,
    },
    /// Acknowledges one of the wakes that were received, by number or as the last.
    Ack(prop::sample::Index, bool),
    /// The program ends in order, or is killed, and another goes on from what was saved.
    Restore {
        in_order: bool,
    },
}

fn ops() -> impl Strategy<Value = Vec<(usize, Op)>> {
    let op = prop_oneof![
        3 => Just(Op::Start),
        1 => Just(Op::StartOther),
        2 => Just(Op::Stop),
        3 => (0..3).prop_map(Op::Exit),
        1 => Just(Op::Signalled),
        1 => Just(Op::Lose),
        2 => Just(Op::BackedOff),
        6 => (1..8_u64).prop_map(Op::Lines),
        4 => any::<bool>().prop_map(|received| Op::Take { received }),
        3 => (any::<prop::sample::Index>(), any::<bool>()).prop_map(|(which, last)| Op::Ack(which, last)),
        1 => any::<bool>().prop_map(|in_order| Op::Restore { in_order }),
    ];
    prop::collection::vec((0..IDS.len(), op), 1..120)
}

/// What the world outside knows of one monitor.
#[derive(Default)]
struct Seen {
    /// A run that goes on, as its owner knows it.
    runs: Option<u64>,
    stopped: bool,
    version: u64,
    next_line: u64,
    /// What wakes and is not acknowledged: number and, for lines, text.
    unread: BTreeMap<u64, String>,
    /// Ends of wakes received and not acknowledged.
    wakes: Vec<u64>,
    last_returned: u64,
    ends_told: BTreeMap<u64, u32>,
    ended: u64,
}

struct World {
    session: Session,
    seen: BTreeMap<&'static str, Seen>,
    newest: u64,
}

impl World {
    fn new() -> Self {
        let mut session = Session::new(small());
        session.ready(NOW);
        Self { session, seen: IDS.map(|id| (id, Seen::default())).into(), newest: 0 }
    }

    fn spec(&self, id: &str) -> MonitorSpec {
        let mut spec = MonitorSpec::new(id, format!("v{}", self.seen[id].version));
        (spec.restart, spec.max_restarts) = (MonitorRestart::OnFailure, 2);
        spec.restart_on_restore = id == "b";
        spec
    }

    fn known(&self, id: &str) -> bool {
        self.session.status(id).is_ok()
    }

    fn apply(&mut self, id: &'static str, op: &Op) {
        match op {
            Op::Start | Op::StartOther => {
                let seen = self.seen.get_mut(id).unwrap();
                seen.version += u64::from(matches!(op, Op::StartOther));
                seen.stopped = false;
                self.session.start(self.spec(id), NOW).unwrap();
            }
            Op::Stop if self.known(id) => {
                let was_ended = matches!(
                    self.session.status(id).unwrap().state,
                    MonitorState::Exited | MonitorState::Failed
                ) && !self.session.is_active(id);
                self.session.stop(id).unwrap();
                self.seen.get_mut(id).unwrap().stopped = !was_ended;
            }
            Op::Exit(status) => self.end(id, &End::Exited { status: *status }),
            Op::Signalled => self.end(id, &End::Signalled { signal: "SIGKILL".to_owned() }),
            Op::Lose => self.end(id, &End::Lost("gone".to_owned())),
            Op::BackedOff if self.known(id) => self.session.backed_off(id, NOW),
            Op::Lines(count) => {
                if let Some(run_id) = self.seen[id].runs {
                    let seen = self.seen.get_mut(id).unwrap();
                    let lines = seen.next_line..seen.next_line + count;
                    seen.next_line = lines.end;
                    for (sequence, line) in (self.newest + 1..).zip(lines.clone()) {
                        seen.unread.insert(sequence, line.to_string());
                    }
                    write(&mut self.session, id, run_id, lines);
                }
            }
            Op::Take { received } => self.take(*received),
            Op::Ack(which, last) => {
                let seen = self.seen.get_mut(id).unwrap();
                let through = match (last, seen.wakes.is_empty()) {
                    (true, _) => seen.last_returned,
                    (false, true) => return,
                    (false, false) => *which.get(&seen.wakes),
                };
                if self.session.ack(&[(id.to_owned(), (!last).then_some(through))]).is_ok() {
                    seen.unread.retain(|sequence, _| *sequence > through);
                    seen.wakes.retain(|sequence| *sequence > through);
                }
            }
            Op::Restore { in_order } => self.restore(*in_order),
            Op::Stop | Op::BackedOff => {}
        }
    }

    fn end(&mut self, id: &'static str, end: &End) {
        if let Some(run_id) = self.seen.get_mut(id).unwrap().runs.take() {
            self.seen.get_mut(id).unwrap().ended += 1;
            self.session.ended(id, run_id, end, NOW);
            // News of it again is no news.
            exit(&mut self.session, id, run_id, 9);
        }
    }

    fn take(&mut self, received: bool) {
        let batch = self.session.take_updates(None);
        for wake in &batch.wakes {
            let seen = self.seen.get_mut(wake.monitor_id.as_str()).unwrap();
            seen.last_returned = wake.through_sequence;
            if received {
                seen.wakes.push(wake.through_sequence);
            }
        }
        self.check_wakes(&batch);
    }

    /// Each line since the last acknowledgement is in the text or counted in it.
    fn check_wakes(&self, batch: &MonitorUpdateBatch) {
        for (id, seen) in &self.seen {
            let wake = batch.wakes.iter().find(|wake| wake.monitor_id == *id);
            let Some(wake) = wake else {
                assert!(seen.unread.is_empty(), "{id}: no wake for {:?}", seen.unread);
                continue;
            };
            let lines: Vec<&str> = wake.text.lines().collect();
            let held = lines.len() - usize::from(wake.dropped > 0);
            assert_eq!(wake.dropped + held as u64, seen.unread.len() as u64, "{id}: {wake:?}");
            let last: Vec<&String> = seen.unread.values().rev().take(held).collect();
            assert!(
                last.iter()
                    .rev()
                    .zip(&lines[lines.len() - held..])
                    .all(|(unread, line)| line.ends_with(*unread))
            );
        }
    }

    fn restore(&mut self, in_order: bool) {
        if in_order {
            self.session.leave();
            for id in IDS {
                if let Some(run_id) = self.seen.get_mut(id).unwrap().runs.take() {
                    self.seen.get_mut(id).unwrap().ended += 1;
                    self.session.ended(id, run_id, &End::Signalled { signal: "SIGTERM".to_owned() }, NOW);
                }
            }
            assert!(self.session.close());
        } else {
            for seen in self.seen.values_mut() {
                seen.ended += u64::from(seen.runs.take().is_some());
            }
        }
        let text = serde_json::to_string(&self.session.kept()).unwrap();
        self.session = Session::new(small());
        self.session.restore(serde_json::from_str(&text).unwrap(), NOW);
        self.notice();
        self.session.ready(NOW);
    }

    /// Looks at what has happened of itself: events, and runs that have begun.
    fn notice(&mut self) {
        for id in IDS.into_iter().filter(|id| self.session.status(id).is_ok()) {
            let seen = self.seen.get_mut(id).unwrap();
            for event in self.session.logs(id, self.newest + 1, 1000).unwrap() {
                if event.stream != MonitorStream::Lifecycle {
                    continue;
                }
                let gave_up = event.message.contains("gave up");
                *seen.ends_told.entry(event.run_id).or_default() += u32::from(!gave_up);
                if event.queue_turn_input.is_some() {
                    seen.unread.insert(event.sequence, event.message);
                }
            }
        }
        let logs = IDS.into_iter().filter_map(|id| self.session.logs(id, 0, 1000).ok()).flatten();
        self.newest = logs.map(|event| event.sequence).max().unwrap_or(0).max(self.newest);
        for id in IDS {
            let seen = self.seen.get_mut(id).unwrap();
            while seen.runs.is_none() {
                match self.session.next(id) {
                    Step::Run { run_id } => seen.runs = Some(run_id),
                    Step::Skip { run_id } => {
                        seen.ended += 1;
                        self.session.ended(id, run_id, &End::Unbegun, NOW);
                    }
                    Step::Rest | Step::BackOff(_) => break,
                }
            }
        }
    }

    fn check(&self) {
        let snapshot = self.session.snapshot();
        let running = snapshot.monitors.iter().filter(|status| status.state == MonitorState::Running).count();
        assert_eq!(snapshot.active_count, running);
        for status in &snapshot.monitors {
            let seen = &self.seen[status.spec.id.as_str()];
            assert_eq!(status.state == MonitorState::Running, seen.runs.is_some());
            assert!(seen.runs.is_none_or(|run_id| run_id == status.run_id));
            assert!(
                seen.runs
                    .is_none_or(|_| status.armed || self.session.is_stopping(&status.spec.id, status.run_id))
            );
            if seen.stopped && seen.runs.is_none() {
                assert!(matches!(status.state, MonitorState::Stopped | MonitorState::Idle), "{status:?}");
                assert!(!status.armed);
            }
            assert!(seen.ends_told.values().all(|told| *told == 1), "{:?}", seen.ends_told);
            assert_eq!(seen.ends_told.len() as u64, seen.ended, "one for each run that ended");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_no_wake_is_lost_and_every_end_is_told_once(ops in ops()) {
        let mut world = World::new();
        for (id, op) in &ops {
            world.apply(IDS[*id], op);
            world.notice();
            world.check();
        }
        world.take(true);
    }
}
