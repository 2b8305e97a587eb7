//! What is told of monitors.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::spec::MonitorSpec;

/// How a monitor stands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct MonitorStatus {
    /// What it is to do, under its visible id and without the values of its variables.
    pub spec: MonitorSpec,
    /// It runs, or will without being told to.
    pub armed: bool,
    /// What it does.
    #[serde(alias = "run_state")]
    pub state: MonitorState,
    /// The text of its last event.
    #[serde(default)]
    pub last_event: Option<String>,
    /// Why its last run failed.
    #[serde(default)]
    pub last_error: Option<String>,
    /// The exit status of its last run.
    #[serde(default)]
    pub last_exit_status: Option<i32>,
    /// The signal that ended its last run.
    #[serde(default)]
    pub last_signal: Option<String>,
    /// Events so far.
    #[serde(default)]
    pub event_count: u64,
    /// How many of them were dropped before they were returned.
    #[serde(default)]
    pub dropped_count: u64,
    /// Its newest run; 0 before the first.
    #[serde(default)]
    pub run_id: u64,
    /// The synthetic pid of the command that runs.
    #[serde(default)]
    pub pid: Option<u32>,
    /// When its newest run began: wall clock, epoch milliseconds.
    #[serde(default)]
    pub started_at_ms: Option<u64>,
    /// Restarts by policy since it was started.
    #[serde(default)]
    pub restarts: u32,
}

/// What a monitor does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MonitorState {
    /// It has not run, or its last run ended with its session.
    #[default]
    Idle,
    /// A run goes on.
    Running,
    /// It was stopped, and stays so until it is started.
    Stopped,
    /// Its last run ended with status 0.
    Exited,
    /// Its last run ended in another way.
    Failed,
}

/// Something a monitor's command wrote, or that happened to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct MonitorEvent {
    /// Rises over all monitors of a session, from 1.
    pub sequence: u64,
    /// Whose it is.
    pub monitor_id: String,
    /// The line, or what happened.
    pub message: String,
    /// What it adds to the agent's next turn, if it wakes.
    #[serde(default)]
    pub queue_turn_input: Option<String>,
    /// The run it belongs to.
    #[serde(default)]
    pub run_id: u64,
    /// Where it comes from.
    #[serde(default)]
    pub stream: MonitorStream,
    /// When it was read: wall clock, epoch milliseconds.
    #[serde(default)]
    pub timestamp_ms: u64,
    /// The line was longer than it may be, and this is its beginning.
    #[serde(default)]
    pub truncated: bool,
}

/// Where an event comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MonitorStream {
    /// A line of standard output.
    #[default]
    Stdout,
    /// A line of standard error.
    Stderr,
    /// The end of a run, or events that were dropped.
    Lifecycle,
}

/// Every monitor, from `monitor.status`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct MonitorSnapshot {
    /// Rises with every change.
    pub revision: u64,
    /// How many run.
    pub active_count: usize,
    /// By id.
    pub monitors: Vec<MonitorStatus>,
}

/// What is new, from `monitor.take_updates`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct MonitorUpdateBatch {
    /// Rises with every change.
    pub revision: u64,
    /// How many run.
    pub active_count: usize,
    /// In the order of their sequence.
    pub events: Vec<MonitorEvent>,
    /// Events that were dropped before they were taken, by monitor; each also shows as one event in their place.
    pub dropped: BTreeMap<String, u64>,
    /// What wakes, until it is acknowledged.
    pub wakes: Vec<MonitorWake>,
}

/// What a monitor has to say to the agent's next turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct MonitorWake {
    /// Whose it is.
    pub monitor_id: String,
    /// What wakes: the lines since the last acknowledgement, as far as they are kept.
    pub text: String,
    /// What `monitor.ack_wake` is given.
    pub through_sequence: u64,
    /// Lines since the last acknowledgement that are not in the text.
    pub dropped: u64,
}
