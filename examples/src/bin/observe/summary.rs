//! A tree of what ran.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, Write},
    time::Duration,
};

use agentvm_examples::forest;
use agentvm_sdk::{FileAccess, ObserverEvent, ObserverEventKind, ProcessKey};
use anstyle::{AnsiColor, Style};

use super::command;

const GOOD: Style = AnsiColor::Green.on_default();
const BAD: Style = AnsiColor::Red.on_default();

/// What was seen so far.
#[derive(Default)]
pub(super) struct Summary {
    runs: BTreeMap<ProcessKey, Run>,
    /// Children by their parent, in the order in which they began; those of nobody first.
    children: BTreeMap<Option<ProcessKey>, Vec<ProcessKey>>,
    losses: BTreeSet<String>,
}

/// One process.
#[derive(Default)]
struct Run {
    key: Option<ProcessKey>,
    /// Unknown if it was over before anybody could look.
    pid: Option<u32>,
    command: String,
    begun_ns: u64,
    ended_ns: Option<u64>,
    code: Option<i32>,
    written: BTreeSet<String>,
    connected: BTreeSet<String>,
}

impl Summary {
    pub(super) fn add(&mut self, event: &ObserverEvent) {
        if let ObserverEventKind::Loss { reason, count } = &event.kind {
            self.losses.insert(format!("{}: {reason} ({count})", event.category));
        }
        let Some(key) = event.key else { return };
        let run = self.runs.entry(key).or_insert_with(|| {
            self.children.entry(event.parent_key).or_default().push(key);
            Run { key: Some(key), pid: event.pid, begun_ns: event.mono_ns, ..Run::default() }
        });
        match &event.kind {
            kind @ ObserverEventKind::DescendantExec { .. } => run.command = command(kind),
            ObserverEventKind::FileOpen { access: FileAccess::Write | FileAccess::ReadWrite, .. } => {
                run.written.extend(event.kind.path().map(|path| path.display().to_string()));
            }
            ObserverEventKind::NetworkConnect { address } => _ = run.connected.insert(address.to_string()),
            _ => {}
        }
        if matches!(event.kind, ObserverEventKind::Exited { .. } | ObserverEventKind::DescendantExited { .. })
        {
            (run.code, run.ended_ns) = (event.kind.folded_code(), Some(event.mono_ns));
        }
    }

    pub(super) fn write(&self, output: &mut impl Write) -> io::Result<()> {
        let of =
            |parent| self.children.get(&parent).into_iter().flatten().filter_map(|key| self.runs.get(key));
        let roots: Vec<_> = of(None).collect();
        forest::draw(output, roots.into_iter(), |run| of(run.key).collect(), line)?;
        self.losses.iter().try_for_each(|loss| writeln!(output, "not seen: {loss}"))
    }
}

fn line(run: &Run) -> String {
    let end = match run.code {
        Some(0) => format!("{GOOD}0{GOOD:#}"),
        Some(code) if code < 0 => format!("{BAD}signal {}{BAD:#}", -code),
        Some(code) => format!("{BAD}{code}{BAD:#}"),
        None if run.ended_ns.is_some() => format!("{BAD}unknown end{BAD:#}"),
        None => "runs".to_owned(),
    };
    let took = run.ended_ns.map(|ended| Duration::from_nanos(ended.saturating_sub(run.begun_ns)));
    let took = took.map_or_else(String::new, |took| format!(" {:.1} ms", took.as_secs_f64() * 1000.0));
    let list = |what: &str, names: &BTreeSet<String>| {
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        if names.is_empty() { String::new() } else { format!(", {what} {}", names.join(" ")) }
    };
    let (written, connected) = (list("wrote", &run.written), list("connected to", &run.connected));
    let command = if run.command.is_empty() { "(fork)" } else { &run.command };
    let pid = run.pid.map_or_else(|| "?".to_owned(), |pid| pid.to_string());
    format!("{pid} {end}{took} {command}{written}{connected}")
}

#[cfg(test)]
mod tests {
    use agentvm_sdk::EventCategory;

    use super::*;

    #[test]
    fn who_was_over_before_anybody_could_look_is_in_the_tree() {
        let about = |pid, ticks, kind| {
            let mut event = ObserverEvent::new(EventCategory::Process, kind);
            event.pid = pid;
            event.key = Some(ProcessKey { pid: ticks, start_ticks: ticks.into() });
            event.parent_key = (ticks > 1).then_some(ProcessKey { pid: 1, start_ticks: 1 });
            event
        };
        let mut summary = Summary::default();
        for (pid, ticks) in [(Some(7), 1), (None, 2)] {
            summary.add(&about(pid, ticks, ObserverEventKind::DescendantStarted { adopted: false }));
        }
        summary.add(&about(None, 2, ObserverEventKind::DescendantExited { exit_code: None, signal: None }));
        let mut tree = Vec::new();
        summary.write(&mut tree).unwrap();
        let tree = anstream::adapter::strip_bytes(&tree).into_vec();
        let tree = String::from_utf8(tree).unwrap();
        assert_eq!(tree, "7 runs (fork)\n└─ ? unknown end 0.0 ms (fork)\n");
    }
}
