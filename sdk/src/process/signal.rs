//! Signals for spawned processes.

use std::time::Duration;

use agentvm_wire::{
    message::Request,
    process::{Signal, SignalProcess, SignalTarget},
};

use super::{exit::ExitStatus, spawn::Process};
use crate::{agent_os::AgentOs, error::ClientError};

impl AgentOs {
    /// Sends SIGTERM to the process's group. A no-op on one that has ended; before the start it is delivered after
    /// it. Sync: needs no runtime.
    ///
    /// # Errors
    /// [`ClientError::ProcessNotFound`].
    #[doc(alias = "stopProcess")]
    pub fn stop_process(&self, pid: u32) -> Result<(), ClientError> {
        self.process(pid).map(|process| process.stop())
    }

    /// Sends SIGKILL to the process and all its descendants, whatever they did with sessions, groups and parents. The
    /// process itself ends last: once its exit is known, nothing of the tree is left. A no-op on one that has ended;
    /// before the start it is delivered after it. Sync: needs no runtime.
    ///
    /// # Errors
    /// [`ClientError::ProcessNotFound`].
    #[doc(alias = "killProcess")]
    pub fn kill_process(&self, pid: u32) -> Result<(), ClientError> {
        self.process(pid).map(|process| process.kill())
    }

    /// Sends any signal to the process, its group or its tree. A no-op on one that has ended; before the start it is
    /// delivered after it. Sync: needs no runtime.
    ///
    /// Signals keep call order. As with the kernel's own standard signals, one of a kind that is still on its way is
    /// not sent twice; that holds for real-time signals too.
    ///
    /// ```no_run
    /// # fn example(vm: &agentvm_sdk::AgentOs, pid: u32) -> Result<(), Box<dyn std::error::Error>> {
    /// use agentvm_sdk::{Signal, SignalTarget};
    ///
    /// vm.signal_process(pid, Signal::HUP, SignalTarget::Process)?;
    /// vm.signal_process(pid, "SIGRTMIN+1".parse()?, SignalTarget::Tree)?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`ClientError::ProcessNotFound`].
    #[doc(alias = "signalProcess")]
    pub fn signal_process(&self, pid: u32, signal: Signal, target: SignalTarget) -> Result<(), ClientError> {
        self.process(pid).map(|process| process.signal(signal, target))
    }

    /// Sends SIGTERM to the process's group and returns as soon as the process has ended; if that takes longer than
    /// `grace`, its whole tree is killed. On one that has ended already it returns how.
    ///
    /// ```no_run
    /// # async fn example(vm: &agentvm_sdk::AgentOs, pid: u32) -> Result<(), agentvm_sdk::ClientError> {
    /// use std::time::Duration;
    ///
    /// let status = vm.stop_process_with_grace(pid, Duration::from_secs(10)).await?;
    /// if status.signal.as_deref() == Some("SIGKILL") {
    ///     println!("it did not listen");
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`ClientError::ProcessNotFound`], and those of [`AgentOs::wait_process`].
    ///
    /// # Cancel safety
    /// Dropped before it is done, SIGTERM was sent and no kill follows.
    pub async fn stop_process_with_grace(
        &self,
        pid: u32,
        grace: Duration,
    ) -> Result<ExitStatus, ClientError> {
        self.process(pid)?.stop_with_grace(grace).await
    }
}

impl Process {
    /// Sends a signal. See [`AgentOs::signal_process`]; a no-op once it has ended.
    pub fn signal(&self, signal: Signal, target: SignalTarget) {
        self.entry.signal(signal, target);
    }

    /// Sends SIGTERM to its process group; a no-op once it has ended.
    pub fn stop(&self) {
        self.signal(Signal::TERM, SignalTarget::Group);
    }

    /// Sends SIGKILL to its whole tree; a no-op once it has ended.
    pub fn kill(&self) {
        self.signal(Signal::KILL, SignalTarget::Tree);
    }

    /// Kills whatever is left of its tree, also when it has ended itself, and resolves when nothing is.
    pub(crate) async fn end_tree(&self, vm: &AgentOs) -> Result<(), ClientError> {
        let (signal, target) = (Signal::KILL, SignalTarget::Tree);
        let kill = SignalProcess { process: self.entry.id, signal, target };
        vm.vm().call(&Request::SignalProcess(kill)).await.map(drop)
    }

    /// Sends SIGTERM, and SIGKILL after a grace. Errors and cancel safety as [`AgentOs::stop_process_with_grace`].
    pub async fn stop_with_grace(&self, grace: Duration) -> Result<ExitStatus, ClientError> {
        self.stop();
        tokio::select! {
            biased;
            outcome = self.wait() => return outcome,
            () = self.entry.link.sleep(grace) => {}
        }
        self.kill();
        self.wait().await
    }
}
