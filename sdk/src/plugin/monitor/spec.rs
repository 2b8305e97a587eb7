//! What a monitor is to do.

use std::collections::BTreeMap;

use agentvm_wire::process::Signal;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::plugin::error::PluginError;

/// Longest time a field may tell, milliseconds.
const MAX_MS: u64 = 3_600_000;
/// A line holds at least one character.
const MIN_LINE_BYTES: u64 = 4;
/// Longest line that may be asked for, bytes.
const MAX_LINE_BYTES: u64 = 256 << 10;

/// What a monitor runs, and when. Unknown fields of its JSON form are ignored.
///
/// ```
/// use agentvm_sdk::plugin::monitor::{MonitorRestart, MonitorSpec};
///
/// let mut spec = MonitorSpec::new("server", "python3 -m http.server");
/// spec.persistent = true;
/// spec.restart = MonitorRestart::OnFailure;
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[non_exhaustive]
pub struct MonitorSpec {
    /// Its name within its owner: letters, digits, `.`, `_` and `-`.
    pub id: String,
    /// What `/bin/sh -c` runs.
    pub command: String,
    /// Working directory, absolute; that of the VM if not set.
    pub cwd: Option<String>,
    /// Variables over the VM's environment. `monitor.status` shows their names only.
    pub env: BTreeMap<String, String>,
    /// A run has no deadline.
    pub persistent: bool,
    /// Deadline of a run, milliseconds, 1 to 3 600 000; ignored if persistent.
    #[schemars(range(min = 1, max = 3_600_000))]
    pub timeout_ms: u64,
    /// When it starts first.
    pub arm_on: MonitorArm,
    /// What its lines do to the agent.
    pub wake_policy: MonitorWakePolicy,
    /// It starts again in the next program, if it ran when this one ended.
    pub restart_on_restore: bool,
    /// Whether a run follows on one that has ended.
    pub restart: MonitorRestart,
    /// How often at most, from each start on.
    pub max_restarts: u32,
    /// Wait before the first restart, milliseconds, at most 3 600 000; doubled for each further one, up to a minute.
    #[schemars(range(max = 3_600_000))]
    pub backoff_ms: u64,
    /// What its process group gets first when it is stopped.
    #[schemars(with = "String")]
    pub stop_signal: Signal,
    /// How long it may then take, milliseconds, at most 3 600 000, before its tree is killed.
    #[schemars(range(max = 3_600_000))]
    pub stop_grace_ms: u64,
    /// The end of a run wakes, unless it was stopped.
    pub wake_on_exit: bool,
    /// Where a line is cut, bytes, 4 to 262 144.
    #[schemars(range(min = 4, max = 262_144))]
    pub max_line_bytes: u64,
}

impl Default for MonitorSpec {
    fn default() -> Self {
        Self {
            id: String::new(),
            command: String::new(),
            cwd: None,
            env: BTreeMap::new(),
            persistent: false,
            timeout_ms: 300_000,
            arm_on: MonitorArm::default(),
            wake_policy: MonitorWakePolicy::default(),
            restart_on_restore: false,
            restart: MonitorRestart::default(),
            max_restarts: 10,
            backoff_ms: 1000,
            stop_signal: Signal::TERM,
            stop_grace_ms: 5000,
            wake_on_exit: true,
            max_line_bytes: 16_384,
        }
    }
}

/// When a monitor starts first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MonitorArm {
    /// When it is told to.
    #[default]
    Manual,
    /// When the session begins, or when it is first registered in one that has begun; not if it was stopped.
    SessionStart,
}

/// What a monitor's lines do to the agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MonitorWakePolicy {
    /// They are events, and nothing of it wakes.
    Notify,
    /// Those of standard output wake, and the ends of runs.
    #[default]
    QueueTurn,
}

/// Whether a run follows on one that has ended. None follows on a stop, or where the VM is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MonitorRestart {
    /// None does.
    #[default]
    Never,
    /// On one that did not exit with status 0.
    OnFailure,
    /// On any.
    Always,
}

impl MonitorSpec {
    /// A monitor of that name for that command.
    pub fn new(id: impl Into<String>, command: impl Into<String>) -> Self {
        Self { id: id.into(), command: command.into(), ..Self::default() }
    }

    /// Refuses what is out of range.
    pub(super) fn validate(&self) -> Result<(), PluginError> {
        for (field, text) in [("id", &self.id), ("command", &self.command)] {
            if text.trim().is_empty() {
                return Err(PluginError::invalid(field, "is blank"));
            }
        }
        let min_timeout = u64::from(!self.persistent);
        let max_timeout = if self.persistent { u64::MAX } else { MAX_MS };
        for (field, value, min, max) in [
            ("timeout_ms", self.timeout_ms, min_timeout, max_timeout),
            ("backoff_ms", self.backoff_ms, 0, MAX_MS),
            ("stop_grace_ms", self.stop_grace_ms, 0, MAX_MS),
            ("max_line_bytes", self.max_line_bytes, MIN_LINE_BYTES, MAX_LINE_BYTES),
        ] {
            if !(min..=max).contains(&value) {
                return Err(PluginError::invalid(field, format!("{value} is not within {min}..={max}")));
            }
        }
        Ok(())
    }

    /// Without the values of its variables.
    pub(super) fn shown(&self) -> Self {
        let env = self.env.keys().map(|key| (key.clone(), HIDDEN.to_owned())).collect();
        Self { env, ..self.clone() }
    }
}

/// Stands for the value of a variable.
const HIDDEN: &str = "***";

/// The id by which all but its owner call a monitor.
pub(super) fn visible_id(owner: Option<&str>, spec: &MonitorSpec) -> Result<String, PluginError> {
    check_name("id", &spec.id)?;
    match owner.filter(|owner| !owner.is_empty() && *owner != "monitor") {
        Some(owner) => {
            check_name("plugin_id", owner)?;
            Ok(format!("{owner}:{}", spec.id))
        }
        None => Ok(spec.id.clone()),
    }
}

fn check_name(field: &str, name: &str) -> Result<(), PluginError> {
    let allowed = |char: char| char.is_ascii_alphanumeric() || matches!(char, '.' | '_' | '-');
    if name.chars().all(allowed) {
        return Ok(());
    }
    Err(PluginError::invalid(field, format!("{name:?} holds more than letters, digits, '.', '_' and '-'")))
}
