//! [`PluginHost`]: builds the plugins of a session, dispatches their actions, keeps their state.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use async_task::Task;
use serde_json::Value;

use super::{
    action::{ActionInfo, PluginAction, SessionParam},
    error::PluginError,
    registrar::{Action, PluginRegistrar},
    saver::{self, Changes},
    session::{PluginFactory, PluginSessionContext, SessionPlugin},
    snapshot::{HostSnapshot, PluginSnapshot, SnapshotReader, SnapshotWriter},
    store::SnapshotStore,
    task::{self, TaskHost},
};
use crate::{agent_os::AgentOs, callback};

/// The plugins of one agent session over one VM. It holds the VM; dropping it ends whatever its plugins run, but only
/// [`PluginHost::shutdown`] waits for that.
///
/// ```no_run
/// # async fn example(vm: &agentvm_sdk::AgentOs) -> Result<(), agentvm_sdk::plugin::PluginError> {
/// use agentvm_sdk::plugin::{FileStore, PluginHost, monitor::MonitorFactory};
/// use serde_json::json;
///
/// let host = PluginHost::builder(vm, "session-1")
///     .plugin(MonitorFactory::new())
///     .store(FileStore::new("session-1.json"))
///     .start()
///     .await?;
/// for action in host.actions() {
///     println!("{}: {}", action.name, action.description); // what a model chooses from
/// }
/// let spec = json!({"spec": {"id": "log", "command": "tail -f /var/log/app.log"}});
/// host.invoke("monitor.start", Some("session-1"), spec).await?;
/// host.shutdown().await?;
/// # Ok(()) }
/// ```
pub struct PluginHost {
    actions: BTreeMap<&'static str, Action>,
    plugins: Arc<Plugins>,
    context: PluginSessionContext,
    shut_down: AtomicBool,
    /// Saves for as long as the host lives.
    _saver: Option<Task<()>>,
}

/// What a [`PluginHost`] is made of.
#[must_use]
pub struct PluginHostBuilder {
    vm: AgentOs,
    session: String,
    factories: Vec<Box<dyn PluginFactory>>,
    store: Option<Arc<dyn SnapshotStore>>,
    snapshot: Option<HostSnapshot>,
    gather: Duration,
    max_tasks: usize,
}

impl PluginHostBuilder {
    /// Adds a plugin.
    pub fn plugin(mut self, factory: impl PluginFactory + 'static) -> Self {
        self.factories.push(Box::new(factory));
        self
    }

    /// Where the session's state outlives the program; it is restored from there. Nothing is saved if not set.
    pub fn store(mut self, store: impl SnapshotStore + 'static) -> Self {
        self.store = Some(Arc::new(store));
        self
    }

    /// What is restored, instead of what the store holds.
    pub fn restore(mut self, snapshot: HostSnapshot) -> Self {
        self.snapshot = Some(snapshot);
        self
    }

    /// How long changes are gathered before they are saved: 200 ms if not set.
    pub fn save_after(mut self, gather: Duration) -> Self {
        self.gather = gather;
        self
    }

    /// Managed tasks of which rows are kept, live and ended: 1024 if not set. If all live, one more is refused with
    /// [`PluginError::ResourceLimit`].
    pub fn max_tasks(mut self, max_tasks: usize) -> Self {
        self.max_tasks = max_tasks;
        self
    }

    /// Builds and registers the plugins, restores their state, and tells them that the session begins.
    ///
    /// # Errors
    /// [`PluginError::DuplicatePlugin`], [`PluginError::DuplicateAction`], [`PluginError::Store`],
    /// [`PluginError::Snapshot`], and those of the plugins.
    ///
    /// # Cancel safety
    /// Dropping the future ends what was begun.
    pub async fn start(self) -> Result<PluginHost, PluginError> {
        let context = PluginSessionContext {
            session: self.session,
            vm: self.vm,
            tasks: TaskHost::new(self.max_tasks),
            changes: Changes::new(self.store.is_some()),
        };
        let (plugins, actions) = build(&self.factories, &context)?;
        let plugins = Arc::new(plugins);
        let snapshot = match (self.snapshot, &self.store) {
            (Some(snapshot), _) => Some(snapshot),
            (None, Some(store)) => {
                let store = store.clone();
                callback::run(async move { store.load().await }).await?
            }
            (None, None) => None,
        };
        let saver = self.store.map(|store| {
            saver::start(&context.vm, context.changes.clone(), plugins.clone(), store, self.gather)
        });
        let shut_down = AtomicBool::new(false);
        let host = PluginHost { actions, plugins, context, shut_down, _saver: saver };
        if let Some(snapshot) = snapshot {
            host.plugins.restore(snapshot)?;
        }
        for plugin in &host.plugins.list {
            plugin.session_ready().await?;
        }
        host.context.saved().await?;
        Ok(host)
    }
}

impl fmt::Debug for PluginHostBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PluginHostBuilder").field("session", &self.session).finish_non_exhaustive()
    }
}

impl PluginHost {
    /// A host for the plugins of a session, over a VM.
    pub fn builder(vm: &AgentOs, session: impl Into<String>) -> PluginHostBuilder {
        PluginHostBuilder {
            vm: vm.clone(),
            session: session.into(),
            factories: Vec::new(),
            store: None,
            snapshot: None,
            gather: saver::GATHER,
            max_tasks: task::MAX_TASKS,
        }
    }

    /// Every action there is, by name.
    pub fn actions(&self) -> Vec<ActionInfo> {
        self.actions.values().map(|action| action.info.clone()).collect()
    }

    /// Carries out an action by name.
    ///
    /// # Errors
    /// [`PluginError::UnknownAction`]; [`PluginError::MissingSession`], [`PluginError::UnknownSession`] and
    /// [`PluginError::UnexpectedSession`]; [`PluginError::InvalidArguments`]; [`PluginError::ShutDown`]; and those of
    /// the action.
    ///
    /// # Cancel safety
    /// That of the action.
    pub async fn invoke(
        &self,
        action: &str,
        session: Option<&str>,
        args: Value,
    ) -> Result<Value, PluginError> {
        let known = self.actions.get(action);
        let known = known.ok_or_else(|| PluginError::UnknownAction { action: action.to_owned() })?;
        self.check_session(&known.info, session)?;
        if self.shut_down.load(Ordering::Relaxed) {
            return Err(PluginError::ShutDown);
        }
        (known.run)(args).await
    }

    /// Carries out an action of this session by its type. Errors and cancel safety as [`PluginHost::invoke`].
    ///
    /// ```no_run
    /// # async fn example(host: &agentvm_sdk::plugin::PluginHost) -> Result<(), agentvm_sdk::plugin::PluginError> {
    /// use agentvm_sdk::plugin::monitor::{MonitorSpec, Start, StartArgs};
    ///
    /// let spec = MonitorSpec::new("build", "make -k");
    /// println!("{:?}", host.invoke_typed::<Start>(StartArgs { spec }).await?.state);
    /// # Ok(()) }
    /// ```
    pub async fn invoke_typed<A: PluginAction>(&self, args: A::Args) -> Result<A::Output, PluginError> {
        let failed =
            |error: serde_json::Error| PluginError::Failed { message: format!("{}: {error}", A::NAME) };
        let session = (A::SESSION_PARAM != SessionParam::Forbidden).then_some(self.session());
        let args = serde_json::to_value(args).map_err(failed)?;
        let output = self.invoke(A::NAME, session, args).await?;
        serde_json::from_value(output).map_err(failed)
    }

    fn check_session(&self, action: &ActionInfo, session: Option<&str>) -> Result<(), PluginError> {
        let name = || action.name.to_owned();
        match (action.session_param, session) {
            (SessionParam::Required, None) => Err(PluginError::MissingSession { action: name() }),
            (SessionParam::Forbidden, Some(_)) => Err(PluginError::UnexpectedSession { action: name() }),
            (_, Some(session)) if session != self.session() => {
                Err(PluginError::UnknownSession { session: session.to_owned() })
            }
            _ => Ok(()),
        }
    }

    /// The session's id.
    pub fn session(&self) -> &str {
        &self.context.session
    }

    /// The tasks of its plugins.
    pub fn tasks(&self) -> &TaskHost {
        &self.context.tasks
    }

    /// The state of every plugin.
    ///
    /// # Errors
    /// [`PluginError::Snapshot`].
    pub fn snapshot(&self) -> Result<HostSnapshot, PluginError> {
        self.plugins.snapshot()
    }

    /// How often the state of a plugin has changed since the host began.
    pub fn revision(&self) -> u64 {
        self.context.changes.noted()
    }

    /// Resolves with the revision once it is another than `seen`: whoever then looks misses nothing. Cancel safe.
    ///
    /// ```no_run
    /// # async fn example(host: agentvm_sdk::plugin::PluginHost) -> Result<(), agentvm_sdk::plugin::PluginError> {
    /// use agentvm_sdk::plugin::monitor::{TakeUpdates, TakeUpdatesArgs};
    ///
    /// loop {
    ///     let seen = host.revision();
    ///     for event in host.invoke_typed::<TakeUpdates>(TakeUpdatesArgs::default()).await?.events {
    ///         println!("{}: {}", event.monitor_id, event.message);
    ///     }
    ///     host.changed(seen).await;
    /// }
    /// # }
    /// ```
    pub async fn changed(&self, seen: u64) -> u64 {
        self.context.changes.noted_since(seen).await
    }

    /// Ends the session: no action is taken any more, every plugin ends what it runs, and the state is saved.
    ///
    /// # Errors
    /// [`PluginError::Store`] and [`PluginError::Snapshot`]: all has ended, and the last of it is not saved.
    ///
    /// # Cancel safety
    /// Call it again to wait for the rest.
    pub async fn shutdown(&self) -> Result<(), PluginError> {
        self.shut_down.store(true, Ordering::Relaxed);
        for plugin in self.plugins.list.iter().rev() {
            plugin.shutdown().await;
        }
        self.context.tasks.close().await;
        self.context.saved().await
    }
}

impl fmt::Debug for PluginHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PluginHost").field("session", &self.session()).finish_non_exhaustive()
    }
}

impl Drop for PluginHost {
    fn drop(&mut self) {
        drop(self.context.tasks.cancel_all());
    }
}

/// Builds the plugins and gathers their actions.
fn build(
    factories: &[Box<dyn PluginFactory>],
    context: &PluginSessionContext,
) -> Result<(Plugins, BTreeMap<&'static str, Action>), PluginError> {
    let (mut ids, mut registrar, mut list) = (BTreeSet::new(), PluginRegistrar::default(), Vec::new());
    for factory in factories {
        if !ids.insert(factory.id()) {
            return Err(PluginError::DuplicatePlugin { plugin: factory.id().to_owned() });
        }
        let plugin = factory.build(context);
        plugin.register(&mut registrar)?;
        list.push(plugin);
    }
    Ok((Plugins { session: context.session.clone(), list }, registrar.actions))
}

/// The plugins of a session as one.
pub(super) struct Plugins {
    session: String,
    list: Vec<Arc<dyn SessionPlugin>>,
}

impl Plugins {
    pub(super) fn revisions(&self) -> Vec<u64> {
        self.list.iter().map(|plugin| plugin.snapshot_revision()).collect()
    }

    pub(super) fn snapshot(&self) -> Result<HostSnapshot, PluginError> {
        let mut plugins = Vec::new();
        for plugin in &self.list {
            let mut writer = SnapshotWriter { plugin: plugin.id().to_owned(), ..SnapshotWriter::default() };
            let meta = plugin.snapshot(&mut writer)?;
            plugins.push(PluginSnapshot { meta, sections: writer.sections });
        }
        Ok(HostSnapshot { session: self.session.clone(), plugins })
    }

    fn restore(&self, snapshot: HostSnapshot) -> Result<(), PluginError> {
        if snapshot.session != self.session {
            return Err(PluginError::UnknownSession { session: snapshot.session });
        }
        for PluginSnapshot { meta, sections } in snapshot.plugins {
            let reader = SnapshotReader { plugin: meta.plugin_id.clone(), sections };
            let Some(plugin) = self.list.iter().find(|plugin| plugin.id() == reader.plugin) else {
                let message = "no such plugin here".to_owned();
                return Err(PluginError::Snapshot { plugin: reader.plugin, message });
            };
            plugin.restore(meta, &reader)?;
        }
        Ok(())
    }
}
