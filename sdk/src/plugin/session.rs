//! The two traits a plugin implements, and what it is built with.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;

use super::{
    error::PluginError,
    registrar::PluginRegistrar,
    saver::Changes,
    snapshot::{PluginSnapshotMeta, SnapshotReader, SnapshotWriter},
    task::TaskHost,
};
use crate::agent_os::AgentOs;

/// Builds a plugin, one instance for each session.
pub trait PluginFactory: Send + Sync {
    /// The plugin's id, which its snapshots carry.
    fn id(&self) -> &'static str;

    /// Builds the session's instance.
    fn build(&self, context: &PluginSessionContext) -> Arc<dyn SessionPlugin>;
}

/// A plugin of one session. Its methods are called in the order they stand here; snapshots are asked for at any time
/// after [`register`](SessionPlugin::register).
#[async_trait]
pub trait SessionPlugin: Send + Sync {
    /// Its id.
    fn id(&self) -> &'static str;

    /// The version of its snapshots.
    fn version(&self) -> &'static str {
        "1"
    }

    /// Says which actions it has.
    fn register(&self, registrar: &mut PluginRegistrar) -> Result<(), PluginError>;

    /// Takes back the state of an earlier instance, before the session is ready.
    fn restore(&self, meta: PluginSnapshotMeta, reader: &SnapshotReader) -> Result<(), PluginError>;

    /// The session begins; whatever was saved is restored.
    async fn session_ready(&self) -> Result<(), PluginError>;

    /// Writes its state.
    fn snapshot(&self, writer: &mut SnapshotWriter) -> Result<PluginSnapshotMeta, PluginError>;

    /// Rises with every change that a snapshot would show.
    fn snapshot_revision(&self) -> u64;

    /// Ends whatever it has running; its state is saved once more behind this. May be called again.
    async fn shutdown(&self);
}

/// What a plugin is built with: its session's VM and what the host does for it. Cheap to clone.
#[derive(Debug, Clone)]
pub struct PluginSessionContext {
    pub(super) session: String,
    pub(super) vm: AgentOs,
    pub(super) tasks: TaskHost,
    pub(super) changes: Changes,
}

impl PluginSessionContext {
    /// The session's id.
    pub fn session(&self) -> &str {
        &self.session
    }

    /// The session's VM.
    pub fn vm(&self) -> &AgentOs {
        &self.vm
    }

    /// Where long work runs.
    pub fn tasks(&self) -> &TaskHost {
        &self.tasks
    }

    /// The plugin's state has changed: it is saved within the host's time, and
    /// [`PluginHost::changed`](super::PluginHost::changed) resolves.
    pub fn changed(&self) {
        self.changes.note();
    }

    /// Waits until everything that has changed so far is saved; at once where the host has no store.
    ///
    /// # Errors
    /// [`PluginError::Store`] and [`PluginError::Snapshot`].
    ///
    /// # Cancel safety
    /// Cancel safe: it is saved all the same.
    pub async fn saved(&self) -> Result<(), PluginError> {
        self.changes.saved().await
    }

    /// Resolves after a while, without a runtime of the program; at once if the sidecar is gone.
    pub async fn sleep(&self, duration: Duration) {
        self.vm.vm().link.sleep(duration).await;
    }
}
