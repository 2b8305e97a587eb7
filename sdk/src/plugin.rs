//! Plugins of an agent session: named actions with JSON arguments, answers and schemas, and state that outlives the
//! program.
//!
//! ```text
//! agent framework ── invoke("monitor.start", json) ──► PluginHost ──► SessionPlugin ──► AgentOs (the VM)
//!                                                        │  │
//!                                       SnapshotStore ◄──┘  └──► TaskHost (long work)
//! ```
//!
//! A [`PluginHost`] belongs to one session over one VM. It builds its plugins, gives them back the state of an earlier
//! program, dispatches their actions, and saves what changes. Whatever runs on behalf of a plugin runs on the SDK's own
//! threads and is owned by the host: it needs no runtime of the program, and ends with the host.
//!
//! The first plugin is [`monitor`].

mod action;
mod error;
mod host;
pub mod monitor;
mod registrar;
mod saver;
mod session;
mod snapshot;
mod store;
mod task;
#[cfg(test)]
mod tests;

pub use action::{ActionInfo, ActionKind, PluginAction, SessionParam};
pub use error::PluginError;
pub use host::{PluginHost, PluginHostBuilder};
pub use registrar::{ActionRegistrar, PluginRegistrar};
pub use session::{PluginFactory, PluginSessionContext, SessionPlugin};
pub use snapshot::{HostSnapshot, PluginSnapshot, PluginSnapshotMeta, SnapshotReader, SnapshotWriter};
pub use store::{FileStore, SnapshotStore};
pub use task::{TaskHost, TaskId, TaskInfo, TaskState};
