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
///
/// ```
/// use std::sync::{Arc, atomic::{AtomicU64, Ordering::Relaxed}};
/// use agentvm_sdk::plugin::*;
///
/// /// An action: `counter.next` takes nothing and answers with a number.
/// enum Next {}
///
/// impl PluginAction for Next {
///     const NAME: &'static str = "counter.next";
///     const DESCRIPTION: &'static str = "Counts on by one.";
///     const KIND: ActionKind = ActionKind::Command;
///     const SESSION_PARAM: SessionParam = SessionParam::Required;
///     type Args = std::collections::BTreeMap<String, ()>;
///     type Output = u64;
/// }
///
/// struct Counter(Arc<AtomicU64>, PluginSessionContext);
///
/// #[async_trait::async_trait]
/// impl SessionPlugin for Counter {
///     fn id(&self) -> &'static str {
///         "counter"
///     }
///     fn register(&self, registrar: &mut PluginRegistrar) -> Result<(), PluginError> {
///         let (count, context) = (self.0.clone(), self.1.clone());
///         registrar.actions().typed::<Next, _, _>(move |_| {
///             let (next, context) = (count.fetch_add(1, Relaxed) + 1, context.clone());
///             context.changed();
///             async move { context.saved().await.map(|()| next) }
///         })?;
///         Ok(())
///     }
///     fn restore(&self, _: PluginSnapshotMeta, reader: &SnapshotReader) -> Result<(), PluginError> {
///         self.0.store(reader.read("count")?.unwrap_or(0), Relaxed);
///         Ok(())
///     }
///     async fn session_ready(&self) -> Result<(), PluginError> {
///         Ok(())
///     }
///     fn snapshot(&self, writer: &mut SnapshotWriter) -> Result<PluginSnapshotMeta, PluginError> {
///         let revision = self.snapshot_revision();
///         writer.write("count", &revision)?;
///         let (plugin_id, plugin_version) = (self.id().to_owned(), self.version().to_owned());
///         Ok(PluginSnapshotMeta { plugin_id, plugin_version, revision, state: None })
///     }
///     fn snapshot_revision(&self) -> u64 {
///         self.0.load(Relaxed)
///     }
///     async fn shutdown(&self) {}
/// }
///
/// struct Counters;
///
/// impl PluginFactory for Counters {
///     fn id(&self) -> &'static str {
///         "counter"
///     }
///     fn build(&self, context: &PluginSessionContext) -> Arc<dyn SessionPlugin> {
///         Arc::new(Counter(Arc::default(), context.clone()))
///     }
/// }
/// # async fn example(vm: &agentvm_sdk::AgentOs) -> Result<(), PluginError> {
/// let host = PluginHost::builder(vm, "session-1").plugin(Counters).start().await?;
/// assert_eq!(host.invoke_typed::<Next>(Default::default()).await?, 1);
/// # Ok(()) }
/// ```
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
