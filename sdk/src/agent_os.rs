//! [`AgentOs`]: the handle of one VM.

use std::{sync::Arc, time::Duration};

use agentvm_wire::{error::Code, message::Response, vm::IsolationReport};

use crate::{
    config::AgentOsConfig,
    error::ClientError,
    process::millis,
    sidecar::{Sidecar, SidecarConfig},
    vm::{OwnedVm, Vm},
};

/// A VM. Cheap to clone; dropping the last clone disposes of the VM in the background, with or without a runtime.
///
/// The methods are those of the TypeScript SDK in snake case; each names its TypeScript spelling as an alias. `exec`
/// and `spawn` live beside their results in the documentation of [`ExecResult`](crate::ExecResult) and
/// [`Process`](crate::Process).
///
/// ```no_run
/// # async fn example() -> Result<(), agentvm_sdk::ClientError> {
/// use agentvm_sdk::{AgentOs, AgentOsConfig, ExecOptions};
///
/// let vm = AgentOs::create(AgentOsConfig::new()).await?;
/// let result = vm.exec("echo hello from $(hostname)", ExecOptions::new()).await?;
/// assert_eq!(result.exit_code, 0);
/// vm.dispose().await?;
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct AgentOs(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    owned: OwnedVm,
    /// Keeps the connection; dropped after the VM's own farewell was posted.
    sidecar: Sidecar,
}

impl AgentOs {
    /// Builds a VM, launching the shared sidecar if need be.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), agentvm_sdk::ClientError> {
    /// use agentvm_sdk::{AgentOs, AgentOsConfig};
    ///
    /// let config = AgentOsConfig::new().env("LANG", "C.UTF-8").disk_bytes(256 << 20);
    /// let vm = AgentOs::create(config).await?;
    /// println!("{} was built in {:?}", vm.id(), vm.boot_time());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Those of [`AgentOs::create_sidecar`], and [`ClientError::Rejected`] with the failed step, errno, path and what would
    /// enable it, where this host cannot give the isolation asked for.
    ///
    /// # Cancel safety
    /// Dropping the future disposes of what was built.
    pub async fn create(config: AgentOsConfig) -> Result<Self, ClientError> {
        config.vm.validate().map_err(ClientError::Rejected)?;
        let sidecar = match config.connection {
            Some(sidecar) => sidecar,
            None => Sidecar::shared(&config.sidecar).await?,
        };
        let owned = sidecar.link().create_vm(config.vm, config.limits).await?;
        Ok(Self(Arc::new(Inner { owned, sidecar })))
    }

    /// Launches or connects to a sidecar of one's own; [`AgentOsConfig::connection`] puts VMs into it.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), agentvm_sdk::ClientError> {
    /// use agentvm_sdk::{AgentOs, AgentOsConfig, SidecarConfig};
    ///
    /// let sidecar = AgentOs::create_sidecar(&SidecarConfig::Auto).await?;
    /// let one = AgentOs::create(AgentOsConfig::new().connection(sidecar.clone())).await?;
    /// let other = AgentOs::create(AgentOsConfig::new().connection(sidecar)).await?;
    /// # let _ = (one, other);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`ClientError::SidecarNotFound`], [`ClientError::SidecarLaunch`], [`ClientError::BuildMismatch`],
    /// [`ClientError::Disconnected`], [`ClientError::HookMissing`].
    ///
    /// # Cancel safety
    /// Dropping the future ends what was launched.
    #[doc(alias = "createSidecar")]
    pub async fn create_sidecar(config: &SidecarConfig) -> Result<Sidecar, ClientError> {
        Sidecar::create(config).await
    }

    /// The sidecar this program's handles share for `config`, as [`AgentOs::create`] uses it; launched if there is none,
    /// or the last one died. A [`SidecarConfig::Custom`] is never shared.
    ///
    /// Errors and cancel safety as [`AgentOs::create_sidecar`].
    #[doc(alias = "getSharedSidecar")]
    pub async fn shared_sidecar(config: &SidecarConfig) -> Result<Sidecar, ClientError> {
        Sidecar::shared(config).await
    }

    /// Ends the VM with everything in it, at once. Every call that waits, and every later one, gets
    /// [`ClientError::Disposed`]; a second `dispose` is a no-op.
    ///
    /// # Errors
    /// None that leaves a VM behind: if the sidecar is gone, so is the VM.
    ///
    /// # Cancel safety
    /// The VM ends even if the future is dropped.
    pub async fn dispose(&self) -> Result<(), ClientError> {
        if !self.vm().end(&ClientError::Disposed) {
            return Ok(());
        }
        self.end_vm(Duration::ZERO).await
    }

    /// Ends the VM, but first sends SIGTERM to everything in it and gives it `grace` to end by itself. Returns as soon as
    /// all is gone. New calls get [`ClientError::Disposed`] at once; those that wait learn how their processes end, or
    /// get the same where that is by the end of the VM. A [`dispose`](Self::dispose) meanwhile ends the grace; another
    /// `dispose_with_grace` is a no-op.
    ///
    /// ```no_run
    /// # async fn example(vm: &agentvm_sdk::AgentOs) -> Result<(), agentvm_sdk::ClientError> {
    /// use std::time::Duration;
    ///
    /// vm.dispose_with_grace(Duration::from_secs(5)).await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`dispose`](Self::dispose).
    ///
    /// # Cancel safety
    /// The VM ends, after the grace at the latest, even if the future is dropped; what waits gets
    /// [`ClientError::Disposed`] then.
    pub async fn dispose_with_grace(&self, grace: Duration) -> Result<(), ClientError> {
        let vm = self.vm();
        if grace.is_zero() {
            return self.dispose().await;
        }
        if !vm.begin_to_end() {
            return Ok(());
        }
        // Also if this future is dropped.
        let _end = vm.end_when_dropped();
        self.end_vm(grace).await
    }

    async fn end_vm(&self, grace: Duration) -> Result<(), ClientError> {
        let vm = self.vm();
        match vm.link.dispose_vm(vm.id, millis(grace)).await {
            Ok(Response::Rejected(rejection)) if rejection.code != Code::NOT_FOUND => {
                Err(ClientError::Rejected(rejection))
            }
            // It may have ended by itself meanwhile, or the whole sidecar did.
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// What holds this VM in, read back from inside after it was built.
    pub fn isolation_report(&self) -> &IsolationReport {
        &self.0.owned.created.isolation
    }

    /// How long the sidecar took to build the VM, until its init said ready.
    pub fn boot_time(&self) -> Duration {
        Duration::from_micros(self.0.owned.created.boot_us)
    }

    /// The VM's id.
    pub fn id(&self) -> agentvm_wire::id::VmId {
        self.vm().id
    }

    /// The sidecar this VM lives in; pass it to [`AgentOsConfig::connection`] to put another VM beside it.
    pub fn sidecar(&self) -> &Sidecar {
        &self.0.sidecar
    }

    pub(crate) fn vm(&self) -> &Arc<Vm> {
        &self.0.owned.vm
    }
}
