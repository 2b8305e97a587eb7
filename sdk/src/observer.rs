//! Observation: what happens in a VM, or in one process and its descendants, event by event.
//!
//! ```text
//!   sidecar ─► stream ─► link's thread ─► Observation: lines to events ─► Ring ─► a cursor for each subscriber
//! ```
//!
//! Events are taken off the stream at once, so no process ever waits for who reads them; a reader that is too slow loses
//! the oldest and is told how many. An exit that is observed is published once its event is in the ring.

mod config;
mod observation;
mod ring;
mod subscriber;

use agentvm_wire::{
    message::{Request, Response, Scope},
    observer::{Observe, ReadObserverCapabilities},
};

pub use agentvm_wire::observer::{
    AddressFamily, CapabilitySupport, CategoryCapability, EventCategory, NetworkAddress, ObserverBackend,
    ObserverCapabilities, ObserverEvent, ObserverEventKind, ProcessKey, TraceScope,
};
pub use config::ObserverConfig;
pub(crate) use observation::{EntryExit, Observation};
pub use subscriber::ObserverSubscriber;

use crate::{agent_os::AgentOs, error::ClientError};

impl AgentOs {
    /// What can be observed on the sidecar's host, and how exactly: probed there, never guessed.
    ///
    /// ```no_run
    /// # async fn example(vm: &agentvm_sdk::AgentOs) -> Result<(), agentvm_sdk::ClientError> {
    /// use agentvm_sdk::{EventCategory, TraceScope};
    ///
    /// let capabilities = vm.observer_capabilities(TraceScope::LaunchedProcessTree).await?;
    /// print!("{}", capabilities.render_summary());
    /// assert!(capabilities.is_supported(EventCategory::Lifecycle));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`ClientError::Disposed`] and its kin.
    ///
    /// # Cancel safety
    /// Cancel safe: reads only.
    #[doc(alias = "observerCapabilities")]
    pub async fn observer_capabilities(
        &self,
        scope: TraceScope,
    ) -> Result<ObserverCapabilities, ClientError> {
        let request = Request::ObserverCapabilities(ReadObserverCapabilities { scope });
        let vm = self.vm();
        vm.check_alive()?;
        match vm.link.call(Scope::SESSION, &request).await? {
            Response::ObserverCapabilities(capabilities) => Ok(capabilities),
            other => Err(ClientError::unexpected("observer_capabilities", &other)),
        }
    }

    /// Observes the whole VM from now on: every process that is started after this returned, whole. What runs already is
    /// told as started (`adopted`), and where processes are seen by `ptrace(2)` its descendants are, too, and all of them
    /// are seen from the moment this returns; what is not, like files, a `loss` tells. To observe one process, set
    /// [`SpawnOptions::observe`](crate::SpawnOptions::observe).
    ///
    /// With [`ObserverConfig::system_wide`] every process of the sidecar's host is told of instead, as long as the VM lives:
    /// first those that run (`adopted`), then starts, programs and ends, with the pids of the host. Two things are needed:
    /// a kernel that tells the sidecar's user ([`observer_capabilities`](Self::observer_capabilities) says whether and how
    /// well), and, of a sidecar that this program has not launched, its option `--allow-system-wide`. What the kernel had no
    /// room for is a `loss`.
    ///
    /// ```no_run
    /// # async fn example(vm: &agentvm_sdk::AgentOs) -> Result<(), agentvm_sdk::ClientError> {
    /// use agentvm_sdk::ObserverConfig;
    ///
    /// let events = vm.observe(&ObserverConfig::lifecycle()).await?;
    /// while let Some(event) = events.recv().await {
    ///     println!("{:?} {}", event.pid, event.kind.as_str());
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// `invalid_argument` for a config without categories; `unsupported`, with
    /// [`require_exact`](ObserverConfig::require_exact), where a category is not seen exactly, and where nothing that was
    /// asked for is seen of the host; `permission_denied` where its operator lets nobody observe that; `resource_exhausted` for
    /// more than 64 of a VM at once; [`ClientError::Disposed`] and its kin.
    ///
    /// # Cancel safety
    /// Dropping the future ends the observation.
    pub async fn observe(&self, config: &ObserverConfig) -> Result<ObserverSubscriber, ClientError> {
        let vm = self.vm();
        vm.check_alive()?;
        let (observation, answer) = vm.link.observe(vm.id, config)?;
        let subscriber = ObserverSubscriber::new(observation);
        match vm.link.answer(answer).await? {
            Response::Observing(_) => Ok(subscriber),
            Response::Rejected(rejection) => Err(ClientError::Rejected(rejection)),
            other => Err(ClientError::unexpected("observe", &other)),
        }
    }
}

/// What the sidecar is asked; the stream is chosen where it is sent.
impl From<&ObserverConfig> for Observe {
    fn from(config: &ObserverConfig) -> Self {
        Self {
            stream: agentvm_wire::id::StreamId(0),
            categories: config.categories().to_vec(),
            require_exact: config.require_exact,
        }
    }
}
