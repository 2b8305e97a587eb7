//! Saves what changes: soon, or at once for whoever waits for it.
//!
//! What waits is state: how many changes were noted, how many are to be saved at once, how many are saved. However many
//! come together, one save covers them.

use std::{sync::Arc, time::Duration};

use async_task::Task;
use tokio::sync::watch;

use super::{error::PluginError, host::Plugins, store::SnapshotStore};
use crate::{agent_os::AgentOs, callback};

/// How long changes are gathered before they are saved, unless the host is told otherwise.
pub(super) const GATHER: Duration = Duration::from_millis(200);

/// What has changed, what somebody waits for, and what is saved. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Changes {
    noted: watch::Sender<u64>,
    /// Up to which change somebody waits; `None` where there is no store.
    urgent: Option<watch::Sender<u64>>,
    saved: watch::Sender<Saved>,
}

/// Up to which urgent change everything is saved, and how that went.
type Saved = (u64, Result<(), PluginError>);

impl Changes {
    pub(super) fn new(with_store: bool) -> Self {
        let urgent = with_store.then(|| watch::Sender::new(0));
        Self { noted: watch::Sender::new(0), urgent, saved: watch::Sender::new((0, Ok(()))) }
    }

    pub(super) fn note(&self) {
        self.noted.send_modify(|noted| *noted += 1);
    }

    pub(super) fn noted(&self) -> u64 {
        *self.noted.borrow()
    }

    pub(super) async fn noted_since(&self, seen: u64) -> u64 {
        let mut noted = self.noted.subscribe();
        *noted.wait_for(|noted| *noted != seen).await.expect("self holds the sender")
    }

    pub(super) async fn saved(&self) -> Result<(), PluginError> {
        let Some(urgent) = &self.urgent else { return Ok(()) };
        let mut ticket = 0;
        urgent.send_modify(|urgent| {
            *urgent += 1;
            ticket = *urgent;
        });
        let mut saved = self.saved.subscribe();
        saved.wait_for(|(until, _)| *until >= ticket).await.expect("self holds the sender").1.clone()
    }
}

/// Starts saving; dropping the task ends it.
pub(super) fn start(
    vm: &AgentOs,
    changes: Changes,
    plugins: Arc<Plugins>,
    store: Arc<dyn SnapshotStore>,
    gather: Duration,
) -> Task<()> {
    let link = vm.vm().link.clone();
    let urgent = changes.urgent.as_ref().expect("there is a store");
    // Before the task first runs: from here on nothing is missed.
    let (mut noted, mut wanted) = (changes.noted.subscribe(), urgent.subscribe());
    callback::run(async move {
        let mut saved = None;
        loop {
            tokio::select! {
                _ = wanted.changed() => {}
                _ = noted.changed() => tokio::select! {
                    _ = wanted.changed() => {}
                    () = link.sleep(gather) => {}
                },
            }
            // Before the state is read: what changes meanwhile is told again.
            let until = *wanted.borrow_and_update();
            noted.mark_unchanged();
            let revisions = plugins.revisions();
            let mut result = Ok(());
            if saved.as_ref() != Some(&revisions) {
                result = save(&plugins, &*store).await;
                saved = result.is_ok().then_some(revisions);
            }
            if let Err(error) = &result {
                tracing::warn!(%error, "the state of the plugins is not saved");
            }
            changes.saved.send_modify(|saved| *saved = (until, result));
        }
    })
}

async fn save(plugins: &Plugins, store: &dyn SnapshotStore) -> Result<(), PluginError> {
    Ok(store.save(&plugins.snapshot()?).await?)
}
