//! One VM as the client sees it: its processes by their synthetic pid, and how it ended.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use agentvm_wire::{
    id::{ProcessId, VmId},
    message::{Request, Response, Scope},
    process::{Drain, Execute},
    vm::VmCreated,
};
use tokio::sync::watch;

use crate::{
    config::ProcessLimits,
    error::ClientError,
    link::{Link, WantedStreams},
    process::{
        entry::{Entry, NewEntry},
        millis,
        retained::Retained,
    },
    resource::Warnings,
};

/// A VM. Held by its `AgentOs` handles; the link knows it weakly, so that nothing in the background keeps it alive.
#[derive(Debug)]
pub(crate) struct Vm {
    pub(crate) id: VmId,
    pub(crate) link: Arc<Link>,
    pub(crate) limits: ProcessLimits,
    pub(crate) retained: Arc<Retained>,
    pub(crate) warnings: Warnings,
    entries: scc::HashMap<ProcessId, Arc<Entry>>,
    next_spawn: AtomicU32,
    next_exec: AtomicU32,
    /// How many spawned entries there are; locked while one is admitted.
    pub(crate) spawned: Mutex<u64>,
    /// Nothing new is begun: the VM is in its grace.
    ending: AtomicBool,
    ended: watch::Sender<Option<ClientError>>,
}

impl Vm {
    pub(crate) fn new(id: VmId, link: Arc<Link>, limits: ProcessLimits) -> Arc<Self> {
        Arc::new(Self {
            id,
            link,
            limits,
            retained: Arc::new(Retained::new(limits.vm_retained_output_bytes)),
            warnings: Warnings::new(),
            entries: scc::HashMap::new(),
            next_spawn: AtomicU32::new(ProcessId::FIRST_SPAWNED),
            next_exec: AtomicU32::new(ProcessId::FIRST_EXEC),
            spawned: Mutex::new(0),
            ending: AtomicBool::new(false),
            ended: watch::Sender::new(None),
        })
    }

    /// Why the VM is gone, or about to be, if it is.
    pub(crate) fn check_alive(&self) -> Result<(), ClientError> {
        match self.ended.borrow().clone() {
            Some(cause) => Err(cause),
            None if self.ending.load(Ordering::Relaxed) => Err(ClientError::Disposed),
            None => Ok(()),
        }
    }

    /// From now on nothing new is begun; false if that was so before.
    pub(crate) fn begin_to_end(&self) -> bool {
        !self.ending.swap(true, Ordering::Relaxed) && self.ended.borrow().is_none()
    }

    /// Ends it, as disposed of, when the returned value is dropped.
    pub(crate) fn end_when_dropped(self: &Arc<Self>) -> impl Drop + use<> {
        struct Ends(Arc<Vm>);
        impl Drop for Ends {
            fn drop(&mut self) {
                self.0.end(&ClientError::Disposed);
            }
        }
        Ends(self.clone())
    }

    /// Asks something about the VM. If the VM ends first, that is the answer, and at once.
    pub(crate) async fn call(&self, request: &Request) -> Result<Response, ClientError> {
        self.check_alive()?;
        let mut ended = self.ended.subscribe();
        tokio::select! {
            biased;
            Ok(_) = ended.wait_for(Option::is_some) => {}
            answer = self.link.call(Scope::vm(self.id), request) => match answer {
                // It may have ended while the request was on its way.
                Err(error) => return Err(self.check_alive().err().unwrap_or(error)),
                Ok(answer) => return Ok(answer),
            },
        }
        Err(self.check_alive().err().unwrap_or(ClientError::Disposed))
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

    /// Forgets an entry and its streams.
    pub(crate) fn forget(&self, entry: &Entry) {
        self.entries.remove_sync(&entry.id);
        entry.abandon();
    }

    /// A synthetic pid for a spawned process: rises by one, never reused.
    pub(crate) fn next_spawn_id(&self) -> ProcessId {
        ProcessId(self.next_spawn.fetch_add(1, Ordering::Relaxed))
    }

    /// A number for a process behind `exec`: from another range, invisible in the registry.
    pub(crate) fn next_exec_id(&self) -> ProcessId {
        ProcessId(self.next_exec.fetch_add(1, Ordering::Relaxed))
    }

    /// Sends `execute`; the entry is registered before the request leaves, so that its exit finds it, and `subscribe`
    /// is called on it, so that its first byte finds every subscriber.
    pub(crate) fn execute<T>(
        &self,
        execute: Execute,
        wants: WantedStreams,
        timeout: Option<Duration>,
        subscribe: impl FnOnce(&Arc<Entry>) -> T,
    ) -> Result<(Arc<Entry>, T), ClientError> {
        self.check_alive()?;
        execute.validate().map_err(ClientError::Rejected)?;
        let (id, drains) = (execute.process, execute.drain.is_some());
        let (command, args) = (execute.command.clone(), execute.args.clone());
        // Whoever reads the output of an exec is there from its first byte.
        let retained_bytes = if id.is_exec() { 0 } else { self.limits.retained_per_stream() };
        let (entry, subscribed) = self.link.execute(self.id, execute, wants, |streams, observation| {
            let entry = Arc::new(Entry::new(NewEntry {
                id,
                vm: self.id,
                link: self.link.clone(),
                command,
                args,
                streams,
                observation,
                drains,
                retained: self.retained.clone(),
                retained_bytes,
                stdin_bytes: self.limits.stdin_queue_bytes,
                kill_confirmation: self.limits.kill_confirmation,
            }));
            self.entries.upsert_sync(id, entry.clone());
            let subscribed = subscribe(&entry);
            (entry, subscribed)
        })?;
        if let Some(timeout) = timeout {
            entry.give_up_after(timeout);
        }
        // Ended between the check and the registration: the entry missed the news.
        if let Err(cause) = self.check_alive() {
            entry.lost(cause);
        }
        Ok((entry, subscribed))
    }
}

/// A VM on its way to its handle, and in it: dropping it disposes of the VM, wherever it got to.
#[derive(Debug)]
pub(crate) struct OwnedVm {
    pub(crate) vm: Arc<Vm>,
    pub(crate) created: VmCreated,
}

impl Drop for OwnedVm {
    fn drop(&mut self) {
        if self.vm.end(&ClientError::Disposed) {
            self.vm.link.abandon_vm(self.vm.id);
        }
    }
}

/// The drain that `exec` asks for.
pub(crate) fn exec_drain() -> Drain {
    Drain { quiet_ms: millis(crate::stdio::DRAIN_QUIET), max_ms: millis(crate::stdio::DRAIN_MAX) }
}
