//! A driver: started in a process group of its own, told the steps of one scenario after another, listened to, and
//! killed once it is late or no longer wanted.
//!
//! The end of its standard input tells a driver to end, so one whose runner dies does not live on.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    os::unix::process::CommandExt as _,
    process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, Stdio},
    sync::mpsc::{self, Receiver},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use rustix::process::{Pid, Signal, kill_process_group};
use serde::{Deserialize, Serialize};

use crate::{
    report::Report,
    scenario::{Action, Scenario},
};

/// Of what a driver writes to standard error last.
const STDERR_BYTES: usize = 4096;
/// How much a pipe takes without a reader.
const PIPE_BYTES: usize = 64 << 10;
/// How long what an ended driver wrote to standard error is waited for.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// A driver that waits for a scenario.
pub(super) struct Driver {
    stdin: ChildStdin,
    events: Receiver<Event>,
    /// Told once, when it ends.
    stderr: Receiver<String>,
    group: Group,
}

/// What a driver made of a scenario.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Performance {
    pub(super) reports: Vec<Report>,
    pub(super) end: End,
}

/// How a performance ended.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum End {
    /// Every step was reported, and the driver waits for the next scenario.
    Complete,
    /// The time was over.
    Late,
    /// The driver ended, and this is the last that it wrote to standard error.
    Ended(String),
}

/// What a driver is told.
#[derive(Serialize)]
struct Order {
    step: usize,
    #[serde(flatten)]
    action: Action,
}

/// Of its standard output.
enum Event {
    Line(String),
    End,
}

impl Driver {
    pub(super) fn start(mut command: Command) -> Result<Self> {
        let child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .with_context(|| format!("the driver {} did not start", command.get_program().display()))?;
        let mut group = Group(child);
        let stdin = group.0.stdin.take().context("the driver has no standard input")?;
        let events = lines(group.0.stdout.take().context("the driver has no standard output")?);
        let stderr = tail(group.0.stderr.take().context("the driver has no standard error")?);
        Ok(Self { stdin, events, stderr, group })
    }

    /// Has it perform a scenario, with a new VM. A driver that did not complete it is of no further use.
    pub(super) fn perform(&mut self, scenario: &Scenario, limit: Duration) -> Result<Performance> {
        let deadline = Instant::now() + limit;
        // A driver that has ended wants no orders; the reports it owes tell.
        let _ = self.stdin.write_all(&orders(scenario)?);

        let mut reports = Vec::new();
        while reports.len() < scenario.actions().count() {
            match self.events.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(Event::Line(line)) => {
                    let report = serde_json::from_str(&line);
                    reports.push(report.with_context(|| format!("the driver wrote no report: {line}"))?);
                }
                Ok(Event::End) => return Ok(Performance { reports, end: End::Ended(self.last_words()) }),
                Err(_) => return Ok(Performance { reports, end: End::Late }),
            }
        }
        Ok(Performance { reports, end: End::Complete })
    }

    /// The last that it wrote to standard error; descendants that hold it open are killed.
    fn last_words(&mut self) -> String {
        self.group.kill();
        self.stderr.recv_timeout(LAST_WORDS).unwrap_or_default()
    }
}

/// The steps of a scenario, for a driver. They fit into a pipe: nothing is read back while they are written.
pub(super) fn orders(scenario: &Scenario) -> Result<Vec<u8>> {
    let mut text = Vec::new();
    for (step, action) in scenario.actions().enumerate() {
        serde_json::to_writer(&mut text, &Order { step, action })?;
        text.push(b'\n');
    }
    ensure!(text.len() <= PIPE_BYTES, "the orders have {} bytes, a pipe holds {PIPE_BYTES}", text.len());
    Ok(text)
}

/// Reads lines on a thread of its own.
fn lines(stdout: ChildStdout) -> Receiver<Event> {
    let (sender, events) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            if sender.send(Event::Line(line)).is_err() {
                return;
            }
        }
        let _ = sender.send(Event::End);
    });
    events
}

/// Reads to the end on a thread of its own, and keeps the last.
fn tail(mut stderr: ChildStderr) -> Receiver<String> {
    let (sender, end) = mpsc::channel();
    thread::spawn(move || {
        let mut last = Vec::new();
        let mut chunk = [0; STDERR_BYTES];
        while let Ok(length @ 1..) = stderr.read(&mut chunk) {
            last.extend_from_slice(&chunk[..length]);
            last.drain(..last.len().saturating_sub(STDERR_BYTES));
        }
        let _ = sender.send(String::from_utf8_lossy(&last).into_owned());
    });
    end
}

/// A driver's process group, killed when dropped.
struct Group(Child);

impl Group {
    fn kill(&mut self) {
        if let Some(group) = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw) {
            // It is not reaped yet, so the number is still its own.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
        let _ = self.0.wait();
    }
}
