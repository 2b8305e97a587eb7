//! Standard input of spawned processes, by pid.

use crate::{agent_os::AgentOs, error::ClientError, stdio::StdinInput};

impl AgentOs {
    /// Queues bytes for a process's standard input; they keep call order. Taken whole if nothing is queued or they
    /// fit, else not at all. An empty write is nothing. Sync: needs no runtime.
    ///
    /// ```no_run
    /// # fn example(vm: &agentvm_sdk::AgentOs, pid: u32) -> Result<(), agentvm_sdk::ClientError> {
    /// vm.write_process_stdin(pid, "one line\n")?;
    /// vm.write_process_stdin(pid, b"\xff\xfe")?;
    /// vm.close_process_stdin(pid)?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`ClientError::ProcessNotFound`], [`ClientError::StdinFull`], [`ClientError::StdinClosed`].
    #[doc(alias = "writeProcessStdin")]
    pub fn write_process_stdin(&self, pid: u32, input: impl Into<StdinInput>) -> Result<(), ClientError> {
        self.spawned_entry(pid)?.write_stdin(input.into().0)
    }

    /// Ends a process's standard input behind everything written before. A second close is harmless.
    ///
    /// # Errors
    /// [`ClientError::ProcessNotFound`].
    #[doc(alias = "closeProcessStdin")]
    pub fn close_process_stdin(&self, pid: u32) -> Result<(), ClientError> {
        self.spawned_entry(pid)?.close_stdin();
        Ok(())
    }

    /// [`AgentOs::write_process_stdin`] that waits for room instead of failing for lack of it. The bytes are taken whole
    /// once they fit behind what is queued, or nothing is queued; several such calls take turns.
    ///
    /// ```no_run
    /// # async fn example(vm: &agentvm_sdk::AgentOs, pid: u32) -> Result<(), agentvm_sdk::ClientError> {
    /// for part in ["many", "large", "parts"] {
    ///     vm.write_process_stdin_all(pid, part.repeat(100_000)).await?;
    /// }
    /// vm.close_process_stdin(pid)?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`ClientError::ProcessNotFound`]; [`ClientError::StdinClosed`] if the process ends, or its standard input is
    /// closed, before the bytes were taken.
    ///
    /// # Cancel safety
    /// Dropped before it is done, nothing was taken.
    pub async fn write_process_stdin_all(
        &self,
        pid: u32,
        input: impl Into<StdinInput>,
    ) -> Result<(), ClientError> {
        self.spawned_entry(pid)?.write_stdin_all(input.into().0).await
    }
}
