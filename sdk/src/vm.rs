//! One VM as the client sees it: its processes by their synthetic pid, and how it ended.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicU32, Ordering},
};

use agentvm_wire::{
    id::{ProcessId, VmId},
    process::{Drain, Execute},
};
use tokio::sync::watch;

use crate::{
    config::ProcessLimits,
    error::ClientError,
    link::{Link, WantedStreams},
    process::entry::{Entry, NewEntry},
};

/// A VM. Held by its `AgentOs` handles; the link knows it weakly, so that nothing in the background keeps it alive.
#[derive(Debug)]
pub(crate) struct Vm {
    pub(crate) id: VmId,
    pub(crate) link: Arc<Link>,
    pub(crate) limits: ProcessLimits,
    entries: scc::HashMap<ProcessId, Arc<Entry>>,
    next_spawn: AtomicU32,
    next_exec: AtomicU32,
    /// Serialises admission: counting and pruning the spawned entries.
    pub(crate) admission: Mutex<()>,
    ended: watch::Sender<Option<ClientError>>,
}

impl Vm {
    pub(crate) fn new(id: VmId, link: Arc<Link>, limits: ProcessLimits) -> Arc<Self> {
        Arc::new(Self {
            id,
            link,
            limits,
            entries: scc::HashMap::new(),
            next_spawn: AtomicU32::new(ProcessId::FIRST_SPAWNED),
            next_exec: AtomicU32::new(ProcessId::FIRST_EXEC),
            admission: Mutex::new(()),
            ended: watch::Sender::new(None),
        })
    }

    /// Why the VM is gone, if it is.
    pub(crate) fn check_alive(&self) -> Result<(), ClientError> {
        self.ended.borrow().clone().map_or(Ok(()), Err)
    }

    /// The VM is gone: everyone who waits for one of its processes learns why. The first cause counts.
    pub(crate) fn end(&self, cause: &ClientError) -> bool {
        let first = self.ended.send_if_modified(|ended| {
            let first = ended.is_none();
            ended.get_or_insert_with(|| cause.clone());
            first
        });
        if first {
            self.link.forget_vm(self.id);
            for entry in self.entries() {
                entry.lost(cause.clone());
            }
        }
        first
    }

    pub(crate) fn entry(&self, process: ProcessId) -> Option<Arc<Entry>> {
        self.entries.read_sync(&process, |_, entry| entry.clone())
    }

    /// All entries, unordered.
    pub(crate) fn entries(&self) -> Vec<Arc<Entry>> {
        let mut entries = Vec::new();
        self.entries.iter_sync(|_, entry| {
            entries.push(entry.clone());
            true
        });
        entries
    }

    /// Forgets an entry and drains what its streams still bring to nowhere.
    pub(crate) fn forget(&self, entry: &Entry) {
        self.entries.remove_sync(&entry.id);
        entry.stop_output();
    }

    /// A synthetic pid for a spawned process: rises by one, never reused.
    pub(crate) fn next_spawn_id(&self) -> ProcessId {
        ProcessId(self.next_spawn.fetch_add(1, Ordering::Relaxed))
    }

    /// A number for a process behind `exec`: from another range, invisible in the registry.
    pub(crate) fn next_exec_id(&self) -> ProcessId {
        ProcessId(self.next_exec.fetch_add(1, Ordering::Relaxed))
    }

    /// Sends `execute`; the entry is registered before the request leaves, so that its exit finds it.
    pub(crate) fn execute(&self, execute: Execute, wants: WantedStreams) -> Result<Arc<Entry>, ClientError> {
        self.check_alive()?;
        execute.validate().map_err(ClientError::Rejected)?;
        let (id, drains) = (execute.process, execute.drain.is_some());
        let (command, args) = (execute.command.clone(), execute.args.clone());
        let entry = self.link.execute(self.id, execute, wants, |streams| {
            let entry = Arc::new(Entry::new(NewEntry {
                id,
                vm: self.id,
                link: self.link.clone(),
                command,
                args,
                streams,
                drains,
                retained_bytes: self.limits.retained_output_bytes,
                stdin_bytes: self.limits.stdin_queue_bytes,
            }));
            self.entries.upsert_sync(id, entry.clone());
            entry
        })?;
        // Ended between the check and the registration: the entry missed the news.
        if let Err(cause) = self.check_alive() {
            entry.lost(cause);
        }
        Ok(entry)
    }
}

/// The drain that `exec` asks for.
pub(crate) fn exec_drain() -> Drain {
    let millis =
        |limit: std::time::Duration| u64::try_from(limit.as_millis()).expect("a constant of seconds");
    Drain { quiet_ms: millis(crate::stdio::DRAIN_QUIET), max_ms: millis(crate::stdio::DRAIN_MAX) }
}
