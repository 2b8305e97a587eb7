//! The actions of the monitor plugin: their arguments and answers.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    spec::MonitorSpec,
    status::{MonitorEvent, MonitorSnapshot, MonitorStatus, MonitorUpdateBatch},
};
use crate::plugin::action::{ActionKind, PluginAction, SessionParam};

/// An action and what it is.
macro_rules! action {
    ($action:ident, $name:literal, $kind:ident, $args:ty => $output:ty, $description:literal) => {
        #[doc = concat!("`", $name, "`: ", $description)]
        #[derive(Debug)]
        pub enum $action {}

        impl PluginAction for $action {
            const NAME: &'static str = $name;
            const DESCRIPTION: &'static str = $description;
            const KIND: ActionKind = ActionKind::$kind;
            const SESSION_PARAM: SessionParam = SessionParam::Required;
            type Args = $args;
            type Output = $output;
        }
    };
}

action!(RegisterSpecs, "monitor.register_specs", Command, RegisterSpecsArgs => MonitorSnapshot,
    "Makes monitors known, all or none; those of session_start start with the session.");
action!(Status, "monitor.status", Query, StatusArgs => MonitorSnapshot,
    "Tells how every monitor stands.");
action!(TakeUpdates, "monitor.take_updates", Command, TakeUpdatesArgs => MonitorUpdateBatch,
    "Returns what monitors have written and what wakes, and forgets the events that were taken before.");
action!(AckWake, "monitor.ack_wake", Command, AckWakeArgs => AckWakeOutput,
    "Says that wakes were read; the next line wakes again.");
action!(Start, "monitor.start", Command, StartArgs => MonitorStatus,
    "Starts a monitor: a shell command whose output lines are events. One that runs with another spec is restarted.");
action!(Stop, "monitor.stop", Command, MonitorId => MonitorStatus,
    "Stops a monitor, with everything it has started; it stays stopped until it is started.");
action!(Remove, "monitor.remove", Command, MonitorId => RemoveOutput,
    "Stops a monitor and forgets it, with its events and its wake.");
action!(Logs, "monitor.logs", Query, LogsArgs => LogsOutput,
    "Reads what is kept of a monitor's events, also of those that were taken.");
action!(Wait, "monitor.wait", Task, WaitArgs => WaitOutput,
    "Waits until a monitor has ended and will not restart.");

/// What `monitor.register_specs` is given.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct RegisterSpecsArgs {
    /// The monitors. One that is known gets the new spec with its next run.
    pub specs: Vec<RegisteredSpec>,
}

/// A monitor and whose it is.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct RegisteredSpec {
    /// Its owner, which comes before its id: `owner:id`. None, an empty one and `monitor` do not.
    #[serde(default)]
    pub plugin_id: Option<String>,
    /// What it is to do.
    pub spec: MonitorSpec,
}

/// What `monitor.status` is given: nothing.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, JsonSchema)]
pub struct StatusArgs {}

/// What `monitor.take_updates` is given.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, JsonSchema)]
pub struct TakeUpdatesArgs {
    /// The newest event that was received. Without it that is the newest that was returned.
    #[serde(default)]
    pub after_sequence: Option<u64>,
}

/// What `monitor.ack_wake` is given.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct AckWakeArgs {
    /// Wakes that were read.
    #[serde(default)]
    pub acks: Vec<WakeAck>,
    /// Monitors whose wake was read as it was returned last.
    #[serde(default)]
    pub ids: Vec<String>,
}

/// A wake that was read.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct WakeAck {
    /// The monitor's visible id.
    pub id: String,
    /// The wake's own `through_sequence`. Lines that no returned wake has held stay, whatever it says.
    pub through_sequence: u64,
}

/// What `monitor.ack_wake` answers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct AckWakeOutput {
    /// Of the state in which they are acknowledged.
    pub revision: u64,
}

/// What `monitor.start` is given.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct StartArgs {
    /// A new monitor, or a known one under its visible id.
    pub spec: MonitorSpec,
}

/// Names a monitor.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct MonitorId {
    /// Its visible id.
    pub id: String,
}

/// What `monitor.remove` answers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct RemoveOutput {
    /// What is gone.
    pub id: String,
}

/// What `monitor.logs` is given.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct LogsArgs {
    /// The monitor's visible id.
    pub id: String,
    /// The first event wanted; from the oldest kept if not set.
    #[serde(default)]
    pub from_sequence: u64,
    /// How many at most: 100 if not set.
    #[serde(default = "default_max")]
    pub max: usize,
}

fn default_max() -> usize {
    100
}

/// What `monitor.logs` answers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct LogsOutput {
    /// In the order of their sequence.
    pub events: Vec<MonitorEvent>,
}

/// What `monitor.wait` is given.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct WaitArgs {
    /// The monitor's visible id.
    pub id: String,
    /// How long at most, milliseconds: 30 000 if not set.
    #[serde(default = "default_wait_ms")]
    pub timeout_ms: u64,
}

fn default_wait_ms() -> u64 {
    30_000
}

/// What `monitor.wait` answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct WaitOutput {
    /// How it stands.
    pub status: MonitorStatus,
    /// It has not ended in that time.
    pub timed_out: bool,
}
