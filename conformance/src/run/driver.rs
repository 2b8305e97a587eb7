//! One driver: started in a process group of its own, told the steps, listened to, and killed at the limit.
//!
//! The end of its standard input tells a driver to end, so one whose runner dies does not live on.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    os::unix::process::CommandExt as _,
    process::{Child, Command, Stdio},
    sync::mpsc::{self, Sender},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use rustix::process::{Pid, Signal, kill_process_group};
use serde::Serialize;

use crate::{
    report::Report,
    scenario::{Action, Scenario},
};

/// Of what a driver writes to standard error.
const STDERR_BYTES: u64 = 4096;
/// How much a pipe takes without a reader.
const PIPE_BYTES: usize = 64 << 10;
/// How long what a killed driver wrote to standard error is waited for.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// What a driver came to.
pub(super) struct End {
    pub(super) reports: Vec<Report>,
    /// Whether it reported every step, or ended, before the limit.
    pub(super) in_time: bool,
    /// The beginning of what it wrote there.
    pub(super) stderr: String,
}

/// What a driver is told.
#[derive(Serialize)]
struct Order {
    step: usize,
    #[serde(flatten)]
    action: Action,
}

enum Event {
    Line(String),
    StdoutEnded,
    Stderr(String),
}

pub(super) fn run(mut command: Command, scenario: &Scenario, limit: Duration) -> Result<End> {
    let orders: Vec<Order> =
        scenario.actions().enumerate().map(|(step, action)| Order { step, action }).collect();
    let mut text = Vec::new();
    for order in &orders {
        serde_json::to_writer(&mut text, order)?;
        text.push(b'\n');
    }
    let deadline = Instant::now() + limit;
    let child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .with_context(|| format!("the driver {} did not start", command.get_program().display()))?;
    let mut group = Group(child);
    let (sender, events) = mpsc::channel();
    listen(&mut group.0, sender)?;
    // Held until the driver is done; a pipe takes this much without a reader.
    let stdin = group.0.stdin.as_mut().context("the driver has no standard input")?;
    ensure!(text.len() <= PIPE_BYTES, "the orders have {} bytes, a pipe holds {PIPE_BYTES}", text.len());
    // A driver that has ended wants no orders; the reports it owes tell.
    let _ = stdin.write_all(&text);

    let mut end = End { reports: Vec::new(), in_time: true, stderr: String::new() };
    while end.reports.len() < orders.len() {
        match events.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(Event::Line(line)) => {
                let report = serde_json::from_str(&line);
                end.reports.push(report.with_context(|| format!("the driver wrote no report: {line}"))?);
            }
            Ok(Event::Stderr(text)) => end.stderr = text,
            Ok(Event::StdoutEnded) => break,
            Err(_) => {
                end.in_time = false;
                break;
            }
        }
    }
    drop(group);
    while end.stderr.is_empty() && end.reports.len() < orders.len() {
        match events.recv_timeout(LAST_WORDS) {
            Ok(Event::Stderr(text)) => end.stderr = text,
            Ok(_) => {}
            Err(_) => break,
        }
    }
    Ok(end)
}

/// Reads both outputs on threads of their own.
fn listen(child: &mut Child, sender: Sender<Event>) -> Result<()> {
    let stdout = child.stdout.take().context("the driver has no standard output")?;
    let stderr = child.stderr.take().context("the driver has no standard error")?;
    let errors = sender.clone();
    thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            if sender.send(Event::Line(line)).is_err() {
                return;
            }
        }
        let _ = sender.send(Event::StdoutEnded);
    });
    thread::spawn(move || {
        let mut text = Vec::new();
        let mut stderr = stderr;
        let _ = (&mut stderr).take(STDERR_BYTES).read_to_end(&mut text);
        let _ = errors.send(Event::Stderr(String::from_utf8_lossy(&text).into_owned()));
        // What follows is read so that the driver does not stand still, and is nobody's.
        let _ = std::io::copy(&mut stderr, &mut std::io::sink());
    });
    Ok(())
}

/// A driver's process group, killed when dropped.
struct Group(Child);

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(group) = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw) {
            // It is not reaped yet, so the number is still its own.
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = self.0.wait();
    }
}
