//! Monitors: commands in the VM whose output lines are events for an agent, some of which *wake* it.
//!
//! A monitor's command runs under `/bin/sh -c`. Each line it writes is an event, shown by `monitor.take_updates`; lines of
//! standard output, and the ends of runs, also make a *wake*: a text for the agent's next turn, kept until it is
//! acknowledged, apart from the events, so that no flood of those takes it away. With the wake policy `notify` nothing
//! wakes.
//!
//! ```text
//! command ──► process (spawn, back-pressure) ──► lines ──► session: events, wakes ──► take_updates
//!                 ▲                                           │
//!                 └────────── run, one for each start ◄───────┘ lifecycle, restarts
//! ```
//!
//! ```no_run
//! # async fn example(host: &agentvm_sdk::plugin::PluginHost) -> Result<(), agentvm_sdk::plugin::PluginError> {
//! use agentvm_sdk::plugin::monitor::*;
//!
//! let spec = MonitorSpec::new("errors", "tail -n 0 -F /workspace/app.log | grep --line-buffered ERROR");
//! host.invoke_typed::<Start>(StartArgs { spec }).await?;
//! loop {
//!     let seen = host.revision();
//!     for wake in host.invoke_typed::<TakeUpdates>(TakeUpdatesArgs::default()).await?.wakes {
//!         println!("{}", wake.text); // the agent's turn
//!         let read = WakeAck { id: wake.monitor_id, through_sequence: wake.through_sequence };
//!         host.invoke_typed::<AckWake>(AckWakeArgs { acks: vec![read], ids: Vec::new() }).await?;
//!     }
//!     host.changed(seen).await;
//! }
//! # }
//! ```
//!
//! The example program `monitor` does so with a command of one's choice.
//!
//! What follows from what happens is decided without I/O by `session`; `run` reads and signals one process, and `owner` carries
//! out, as one managed task of the host, what the session wants of one monitor.
//!
//! A run owns its tree: when its command ends, however that comes, what it left behind is killed, and only then the end
//! is told.

mod action;
mod dropped;
mod events;
mod lifecycle;
mod limits;
mod lines;
mod owner;
mod plugin;
mod record;
mod run;
mod session;
mod spec;
mod status;
#[cfg(test)]
mod tests;
mod wake;

pub use action::{
    AckWake, AckWakeArgs, AckWakeOutput, Logs, LogsArgs, LogsOutput, MonitorId, RegisterSpecs,
    RegisterSpecsArgs, RegisteredSpec, Remove, RemoveOutput, Start, StartArgs, Status, StatusArgs, Stop,
    TakeUpdates, TakeUpdatesArgs, Wait, WaitArgs, WaitOutput, WakeAck,
};
pub use limits::MonitorLimits;
pub use plugin::MonitorFactory;
pub use spec::{MonitorArm, MonitorRestart, MonitorSpec, MonitorWakePolicy};
pub use status::{
    MonitorEvent, MonitorSnapshot, MonitorState, MonitorStatus, MonitorStream, MonitorUpdateBatch,
    MonitorWake,
};
