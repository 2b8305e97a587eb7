//! The monitor plugin: its actions, over the session they all share.

use std::{
    collections::BTreeMap,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use async_trait::async_trait;
use tokio::sync::Notify;

use super::{
    action::{
        AckWake, AckWakeArgs, AckWakeOutput, Logs, LogsOutput, RegisterSpecs, RegisterSpecsArgs, Remove,
        RemoveOutput, Start, Status, Stop, TakeUpdates, Wait, WaitArgs, WaitOutput,
    },
    limits::MonitorLimits,
    owner,
    session::Session,
    status::MonitorStatus,
};
use crate::plugin::{
    PluginError, PluginFactory, PluginRegistrar, PluginSessionContext, PluginSnapshotMeta, SessionPlugin,
    SnapshotReader, SnapshotWriter,
};

/// The plugin's id, and that of monitors that no other plugin owns.
const ID: &str = "monitor";
/// The section of its snapshot.
const SECTION: &str = "session";

/// Builds the monitor plugin.
#[derive(Debug, Clone, Copy, Default)]
pub struct MonitorFactory(MonitorLimits);

impl MonitorFactory {
    /// With the default limits.
    pub fn new() -> Self {
        Self::default()
    }

    /// Bounds what is kept.
    #[must_use]
    pub fn limits(mut self, limits: MonitorLimits) -> Self {
        self.0 = limits;
        self
    }
}

impl PluginFactory for MonitorFactory {
    fn id(&self) -> &'static str {
        ID
    }

    fn build(&self, context: &PluginSessionContext) -> Arc<dyn SessionPlugin> {
        Arc::new(Plugin(Arc::new(Shared {
            context: context.clone(),
            session: Mutex::new(Session::new(self.0)),
            news: Mutex::default(),
        })))
    }
}

struct Plugin(Arc<Shared>);

/// What the actions and the owners of the monitors share.
pub(super) struct Shared {
    pub(super) context: PluginSessionContext,
    session: Mutex<Session>,
    /// Tells a monitor's owner to look at the session: one permit each, so that none is lost and none piles up.
    news: Mutex<BTreeMap<String, Arc<Notify>>>,
}

impl Shared {
    pub(super) fn session(&self) -> MutexGuard<'_, Session> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the session; whoever waits looks again, and what has something to do gets an owner.
    pub(super) fn change<T>(self: &Arc<Self>, change: impl FnOnce(&mut Session, u64) -> T) -> T {
        let (changed, unowned) = {
            let mut session = self.session();
            (change(&mut session, crate::now_ms()), session.take_unowned())
        };
        self.context.changed();
        for id in unowned {
            owner::start(self, id);
        }
        changed
    }

    pub(super) fn news(&self, id: &str) -> Arc<Notify> {
        self.all_news().entry(id.to_owned()).or_default().clone()
    }

    fn tell_everybody(&self) {
        for news in self.all_news().values() {
            news.notify_one();
        }
    }

    fn all_news(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Notify>>> {
        self.news.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Resolves once the session gives an answer.
    async fn once<T>(&self, mut ask: impl FnMut(&mut Session) -> Option<T>) -> T {
        loop {
            let seen = self.context.changes.noted();
            let answer = ask(&mut self.session());
            match answer {
                Some(answer) => return answer,
                None => self.context.changes.noted_since(seen).await,
            };
        }
    }

    async fn register(self: Arc<Self>, args: RegisterSpecsArgs) -> Result<(), PluginError> {
        let specs =
            args.specs.into_iter().map(|registered| (registered.plugin_id, registered.spec)).collect();
        self.change(|session, now_ms| session.register(specs, now_ms))?;
        self.tell_everybody();
        self.context.saved().await
    }

    async fn stop(self: Arc<Self>, id: String) -> Result<MonitorStatus, PluginError> {
        let run_id = self.begin_to_stop(&id)?;
        let status = self.once(|session| match session.status(&id) {
            Ok(status) if status.run_id == run_id && session.is_active(&id) => None,
            answer => Some(answer),
        });
        let status = status.await?;
        self.context.saved().await?;
        Ok(status)
    }

    async fn remove(self: Arc<Self>, id: String) -> Result<RemoveOutput, PluginError> {
        // Somebody may start it meanwhile.
        loop {
            self.clone().stop(id.clone()).await?;
            if self.change(|session, _| session.forget(&id)) {
                break;
            }
        }
        self.all_news().remove(&id);
        self.context.saved().await?;
        Ok(RemoveOutput { id })
    }

    /// The run that is being stopped, if one goes on.
    fn begin_to_stop(self: &Arc<Self>, id: &str) -> Result<u64, PluginError> {
        let run_id = self.change(|session, _| {
            session.stop(id)?;
            session.status(id).map(|status| status.run_id)
        })?;
        self.news(id).notify_one();
        Ok(run_id)
    }

    async fn wait(self: Arc<Self>, args: WaitArgs) -> Result<WaitOutput, PluginError> {
        let ended = self.once(|session| match session.status(&args.id) {
            Ok(_) if session.is_active(&args.id) => None,
            answer => Some(answer),
        });
        let (begun, limit) = (Instant::now(), Duration::from_millis(args.timeout_ms));
        let mut ended = pin!(ended);
        tokio::select! {
            biased;
            status = &mut ended => return Ok(WaitOutput { status: status?, timed_out: false }),
            () = self.context.sleep(limit) => {}
        }
        if begun.elapsed() < limit {
            // The sidecar is gone: so is everything that ran.
            return Ok(WaitOutput { status: ended.await?, timed_out: false });
        }
        Ok(WaitOutput { status: self.session().status(&args.id)?, timed_out: true })
    }

    async fn ack(self: Arc<Self>, args: AckWakeArgs) -> Result<AckWakeOutput, PluginError> {
        let through = args.acks.into_iter().map(|ack| (ack.id, Some(ack.through_sequence)));
        let acks: Vec<_> = through.chain(args.ids.into_iter().map(|id| (id, None))).collect();
        let revision = self.change(|session, _| session.ack(&acks).map(|()| session.revision()))?;
        self.context.saved().await?;
        Ok(AckWakeOutput { revision })
    }
}

#[async_trait]
impl SessionPlugin for Plugin {
    fn id(&self) -> &'static str {
        ID
    }

    fn register(&self, registrar: &mut PluginRegistrar) -> Result<(), PluginError> {
        let shared = || self.0.clone();
        let (register, status, take) = (shared(), shared(), shared());
        let (ack, start, stop) = (shared(), shared(), shared());
        let (remove, logs, wait) = (shared(), shared(), shared());
        registrar
            .actions()
            .typed::<RegisterSpecs, _, _>(move |args| {
                let shared = register.clone();
                async move {
                    shared.clone().register(args).await?;
                    Ok(shared.session().snapshot())
                }
            })?
            .typed::<Status, _, _>(move |_| std::future::ready(Ok(status.session().snapshot())))?
            .typed::<TakeUpdates, _, _>(move |args| {
                let shared = take.clone();
                // Taken when it is polled to its answer: who drops it before has taken nothing.
                async move { Ok(shared.change(|session, _| session.take_updates(args.after_sequence))) }
            })?
            .typed::<AckWake, _, _>(move |args| ack.clone().ack(args))?
            .typed::<Start, _, _>(move |args| {
                let shared = start.clone();
                async move {
                    let id = shared.change(|session, now_ms| session.start(args.spec, now_ms))?;
                    shared.news(&id).notify_one();
                    shared.context.saved().await?;
                    shared.session().status(&id)
                }
            })?
            .typed::<Stop, _, _>(move |args| stop.clone().stop(args.id))?
            .typed::<Remove, _, _>(move |args| remove.clone().remove(args.id))?
            .typed::<Logs, _, _>(move |args| {
                let events = logs.session().logs(&args.id, args.from_sequence, args.max);
                std::future::ready(events.map(|events| LogsOutput { events }))
            })?
            .typed::<Wait, _, _>(move |args| wait.clone().wait(args))?;
        Ok(())
    }

    fn restore(&self, meta: PluginSnapshotMeta, reader: &SnapshotReader) -> Result<(), PluginError> {
        if meta.plugin_version != self.version() {
            let message = format!("version {} is not {}", meta.plugin_version, self.version());
            return Err(PluginError::Snapshot { plugin: meta.plugin_id, message });
        }
        if let Some(kept) = reader.read(SECTION)? {
            self.0.change(|session, now_ms| session.restore(kept, now_ms));
        }
        Ok(())
    }

    async fn session_ready(&self) -> Result<(), PluginError> {
        self.0.change(Session::ready);
        Ok(())
    }

    fn snapshot(&self, writer: &mut SnapshotWriter) -> Result<PluginSnapshotMeta, PluginError> {
        let (revision, kept) = {
            let session = self.0.session();
            (session.revision(), session.kept())
        };
        writer.write(SECTION, &kept)?;
        let (plugin_id, plugin_version) = (ID.to_owned(), self.version().to_owned());
        Ok(PluginSnapshotMeta { plugin_id, plugin_version, revision, state: None })
    }

    fn snapshot_revision(&self) -> u64 {
        self.0.session().revision()
    }

    async fn shutdown(&self) {
        self.0.change(|session, _| session.leave());
        self.0.tell_everybody();
        self.0.once(|session| session.close().then_some(())).await;
        self.0.context.changed();
    }
}
