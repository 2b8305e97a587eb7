//! Monitors without I/O: lines, what is dropped, the types as JSON, and the session against a model.

mod dropped;
mod lines;
mod model;
mod session;
mod types;

use super::{
    lifecycle::{End, Step},
    limits::MonitorLimits,
    lines::Line,
    session::Session,
    spec::MonitorSpec,
    status::{MonitorEvent, MonitorStream},
};

/// Any time.
const NOW: u64 = 1_700_000_000_000;

fn small() -> MonitorLimits {
    MonitorLimits { events: 8, wake_lines: 5, ..MonitorLimits::default() }
}

fn session() -> Session {
    ready(small())
}

fn ready(limits: MonitorLimits) -> Session {
    let mut session = Session::new(limits);
    session.ready(NOW);
    session
}

/// Starts a monitor and takes its run on.
fn run(session: &mut Session, spec: MonitorSpec) -> u64 {
    let id = session.start(spec, NOW).unwrap();
    match session.next(&id) {
        Step::Run { run_id } => run_id,
        other => panic!("{other:?}"),
    }
}

fn line(text: String) -> Line {
    Line { text, truncated: false }
}

fn write(session: &mut Session, id: &str, run_id: u64, lines: impl IntoIterator<Item = u64>) {
    session.lines(id, run_id, MonitorStream::Stdout, lines.into_iter().map(|n| line(n.to_string())), NOW);
}

fn exit(session: &mut Session, id: &str, run_id: u64, status: i32) {
    session.ended(id, run_id, &End::Exited { status }, NOW);
}

fn texts(events: &[MonitorEvent]) -> Vec<&str> {
    events.iter().map(|event| event.message.as_str()).collect()
}
