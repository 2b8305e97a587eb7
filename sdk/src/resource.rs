//! What a VM uses of what it may, and warnings before it is used up.

use agentvm_wire::{
    message::{Request, Response},
    resource::{self, Edge, ReadResourceUsage, Resource, ResourceUsage},
};
use tokio::sync::broadcast::{self, error::RecvError};

use crate::{
    agent_os::AgentOs,
    callback::{self, Subscription, guarded},
    error::ClientError,
};

/// Names of the limits that this crate itself keeps, as errors, warnings and [`AgentOs::resource_usage`] call them.
pub(crate) const SPAWNED_PROCESSES: &str = "spawned_processes";
pub(crate) const VM_RETAINED_OUTPUT_BYTES: &str = "vm_retained_output_bytes";

/// Warnings that may wait for a handler; the oldest go first, and are counted.
const WAITING: usize = 64;

/// A limit is nearly met: 80 % of it are used, from [`AgentOs::on_limit_warning`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LimitWarning {
    /// The limit's name, as in [`AgentOs::resource_usage`].
    pub limit: String,
    /// How much is used.
    pub observed: u64,
    /// How much may be.
    pub capacity: u64,
    /// The one as a part of the other.
    pub fill_percent: u32,
    /// How many warnings before this one were dropped because the handler was busy.
    pub dropped: u64,
}

/// Where the warnings of one VM come together.
#[derive(Debug)]
pub(crate) struct Warnings {
    sender: broadcast::Sender<resource::LimitWarning>,
    spawned: Edge,
}

impl Warnings {
    pub(crate) fn new() -> Self {
        Self { sender: broadcast::Sender::new(WAITING), spawned: Edge::default() }
    }

    pub(crate) fn tell(&self, warning: resource::LimitWarning) {
        // Nobody may be listening.
        let _ = self.sender.send(warning);
    }

    pub(crate) fn spawned(&self, observed: u64, limit: u64) {
        if let Some(warning) = self.spawned.observe(SPAWNED_PROCESSES, observed, limit) {
            self.tell(warning);
        }
    }
}

impl AgentOs {
    /// Calls `handler` whenever the use of a limit of this VM rises to 80 %: once, and again only after it has fallen
    /// below 70 %. It runs on the SDK's blocking pool, one call at a time; a panic is reported once and removes it.
    /// Sync: needs no runtime.
    ///
    /// ```no_run
    /// # fn example(vm: &agentvm_sdk::AgentOs) {
    /// let warnings = vm.on_limit_warning(|warning| {
    ///     eprintln!("{} is at {} of {}", warning.limit, warning.observed, warning.capacity);
    /// });
    /// warnings.detach(); // or keep it, and drop it to unsubscribe
    /// # }
    /// ```
    #[doc(alias = "onLimitWarning")]
    pub fn on_limit_warning(&self, mut handler: impl FnMut(LimitWarning) + Send + 'static) -> Subscription {
        let mut warnings = self.vm().warnings.sender.subscribe();
        Subscription::new(callback::run(async move {
            let mut dropped = 0;
            loop {
                match warnings.recv().await {
                    Ok(resource::LimitWarning { limit, observed, capacity, fill_percent }) => {
                        let warning = LimitWarning { limit, observed, capacity, fill_percent, dropped };
                        if guarded("limit warning handler", || handler(warning)).is_none() {
                            return;
                        }
                        dropped = 0;
                    }
                    Err(RecvError::Lagged(missed)) => dropped += missed,
                    Err(RecvError::Closed) => return,
                }
            }
        }))
    }

    /// How much of what is bounded this VM uses now: what the sidecar counts, and what this program itself keeps
    /// (`spawned_processes`: entries of the registry, ended ones included; `vm_retained_output_bytes`).
    ///
    /// ```no_run
    /// # async fn example(vm: &agentvm_sdk::AgentOs) -> Result<(), agentvm_sdk::ClientError> {
    /// for resource in vm.resource_usage().await?.resources {
    ///     println!("{}: {} of {:?} {}", resource.name, resource.used, resource.limit, resource.unit);
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`ClientError::Disposed`] and its kin.
    ///
    /// # Cancel safety
    /// Cancel safe: reads only.
    #[doc(alias = "resourceUsage")]
    pub async fn resource_usage(&self) -> Result<ResourceUsage, ClientError> {
        let vm = self.vm();
        let mut usage = match vm.call(&Request::ResourceUsage(ReadResourceUsage {})).await? {
            Response::ResourceUsage(usage) => usage,
            other => return Err(ClientError::unexpected("resource_usage", &other)),
        };
        let own = |name: &str, used, limit, unit: &str| Resource {
            name: name.to_owned(),
            used,
            limit: Some(limit),
            unit: unit.to_owned(),
        };
        let spawned = *vm.spawned.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        usage.resources.push(own(SPAWNED_PROCESSES, spawned, vm.limits.spawned, "processes"));
        let (retained, limit) = (vm.retained.bytes(), vm.retained.limit);
        usage.resources.push(own(VM_RETAINED_OUTPUT_BYTES, retained, limit, "bytes"));
        Ok(usage)
    }
}
