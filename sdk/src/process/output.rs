//! Output of spawned processes, by pid: subscriptions and a look at what is kept.

use crate::{
    agent_os::AgentOs,
    error::ClientError,
    stdio::{ByteStream, OutputEvents, OutputFrom, OutputPage, OutputStream, Overflow},
};

impl AgentOs {
    /// A process's standard output, from the oldest byte retained. Sync: needs no runtime.
    ///
    /// ```no_run
    /// # async fn example(vm: &agentvm_sdk::AgentOs, pid: u32) -> Result<(), agentvm_sdk::ClientError> {
    /// use agentvm_sdk::Output;
    ///
    /// let mut stdout = vm.on_process_stdout(pid)?;
    /// while let Some(output) = stdout.next().await {
    ///     match output.expect("the sidecar lives") {
    ///         Output::Data(bytes) => print!("{}", String::from_utf8_lossy(&bytes)),
    ///         Output::Gap { missed_bytes } => println!("[{missed_bytes} bytes came too fast]"),
    ///     }
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`ClientError::ProcessNotFound`].
    #[doc(alias = "onProcessStdout")]
    pub fn on_process_stdout(&self, pid: u32) -> Result<ByteStream, ClientError> {
        self.on_process_output_from(pid, OutputStream::Stdout, OutputFrom::Start, Overflow::DropOldest)
    }

    /// A process's standard error, from the oldest byte retained.
    ///
    /// # Errors
    /// [`ClientError::ProcessNotFound`].
    #[doc(alias = "onProcessStderr")]
    pub fn on_process_stderr(&self, pid: u32) -> Result<ByteStream, ClientError> {
        self.on_process_output_from(pid, OutputStream::Stderr, OutputFrom::Start, Overflow::DropOldest)
    }

    /// One output of a process, from where and with what overflow is wanted.
    ///
    /// ```no_run
    /// # async fn example(vm: &agentvm_sdk::AgentOs, pid: u32) -> Result<(), agentvm_sdk::ClientError> {
    /// use agentvm_sdk::{OutputFrom, OutputStream, Overflow};
    ///
    /// // Nothing is missed: the process waits for this reader.
    /// let (from, overflow) = (OutputFrom::Start, Overflow::Wait);
    /// let all = vm.on_process_output_from(pid, OutputStream::Stdout, from, overflow)?.collect().await;
    /// # let _ = all;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`ClientError::ProcessNotFound`].
    pub fn on_process_output_from(
        &self,
        pid: u32,
        stream: OutputStream,
        from: OutputFrom,
        overflow: Overflow,
    ) -> Result<ByteStream, ClientError> {
        Ok(ByteStream::new(self.spawned_entry(pid)?, stream, from, overflow))
    }

    /// Both outputs of a process in the order in which they arrived, each piece with its offset and its time, from the
    /// oldest that is retained.
    ///
    /// ```no_run
    /// # async fn example(vm: &agentvm_sdk::AgentOs, pid: u32) -> Result<(), agentvm_sdk::ClientError> {
    /// use agentvm_sdk::Output;
    ///
    /// let mut events = vm.on_process_output(pid)?.until_exit();
    /// while let Some(Ok(event)) = events.next().await {
    ///     if let Output::Data(bytes) = event.output {
    ///         println!("{} {:?} at {}: {bytes:?}", event.received_at_ms, event.stream, event.offset);
    ///     }
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`ClientError::ProcessNotFound`].
    ///
    /// # Ordering
    /// Each output is in order. Between the two the order is that of arrival in this program, which is that of writing
    /// only where some time lies between.
    #[doc(alias = "onProcessOutput")]
    pub fn on_process_output(&self, pid: u32) -> Result<OutputEvents, ClientError> {
        self.spawned_entry(pid).map(OutputEvents::new)
    }

    /// What is kept of an output from `offset` on, at most `max_bytes`, and which part of it is gone. Sends no request:
    /// reads what has arrived, also of a process that has ended.
    ///
    /// # Errors
    /// [`ClientError::ProcessNotFound`].
    ///
    /// ```no_run
    /// # fn example(vm: &agentvm_sdk::AgentOs, pid: u32) -> Result<(), agentvm_sdk::ClientError> {
    /// use agentvm_sdk::OutputStream;
    ///
    /// let page = vm.read_process_output(pid, OutputStream::Stdout, 0, 64 << 10)?;
    /// if let Some(gone) = &page.gone {
    ///     eprintln!("bytes {gone:?} are no longer kept");
    /// }
    /// let next = vm.read_process_output(pid, OutputStream::Stdout, page.next_offset(), 64 << 10)?;
    /// # let _ = next; Ok(()) }
    /// ```
    #[doc(alias = "readProcessOutput")]
    pub fn read_process_output(
        &self,
        pid: u32,
        stream: OutputStream,
        offset: u64,
        max_bytes: usize,
    ) -> Result<OutputPage, ClientError> {
        self.spawned_entry(pid).map(|entry| entry.read_page(stream, offset, max_bytes))
    }
}
