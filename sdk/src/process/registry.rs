//! The registry of spawned processes: admission, pruning, and what `list_processes` shows.

use std::sync::Arc;

use agentvm_wire::{id::ProcessId, resource::Edge};
use serde::Serialize;

use super::entry::Entry;
use crate::{agent_os::AgentOs, error::ClientError, resource::SPAWNED_PROCESSES, vm::Vm};

/// A process this handle spawned, as `list_processes` and `get_process` show it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct SpawnedProcessInfo {
    /// Synthetic pid, from 1 000 000.
    pub pid: u32,
    /// The program as it was given.
    pub command: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Whether its outcome is still open.
    pub running: bool,
    /// Its exit status, or 128 + n for death by signal n; `None` while it runs and where it is not known.
    pub exit_code: Option<i32>,
    /// The signal's name, if one ended it.
    pub signal: Option<String>,
    /// Why there is no exit code: it did not start, or its end will never be known.
    pub failure: Option<String>,
    /// Wall clock, epoch milliseconds: the start in the VM, or the call to `spawn` until that is known.
    #[serde(rename = "startedAt")]
    pub started_at_ms: u64,
    /// Wall clock, epoch milliseconds.
    #[serde(rename = "exitedAt")]
    pub exited_at_ms: Option<u64>,
}

impl From<&Entry> for SpawnedProcessInfo {
    fn from(entry: &Entry) -> Self {
        let outcome = entry.exit.get();
        let status = outcome.as_ref().and_then(|outcome| outcome.as_ref().ok());
        Self {
            pid: entry.id.0,
            command: entry.command.clone(),
            args: entry.args.clone(),
            running: outcome.is_none(),
            exit_code: status.map(|status| status.code),
            signal: status.and_then(|status| status.signal.clone()),
            failure: entry.failure().map(|error| error.to_string()),
            started_at_ms: entry
                .started_info()
                .map_or(entry.requested_at_ms, |started| started.started_at_ms),
            exited_at_ms: status.map(|status| status.exited_at_ms),
        }
    }
}

impl AgentOs {
    /// The processes this handle spawned, running and ended, in spawn order. No request is sent.
    ///
    /// ```no_run
    /// # fn example(vm: &agentvm_sdk::AgentOs) -> Result<(), agentvm_sdk::ClientError> {
    /// for process in vm.list_processes() {
    ///     println!("{} {} {}", process.pid, process.command, if process.running { "runs" } else { "has ended" });
    /// }
    /// # Ok(()) }
    /// ```
    #[doc(alias = "listProcesses")]
    pub fn list_processes(&self) -> Vec<SpawnedProcessInfo> {
        spawned(self.vm()).iter().map(|entry| (&**entry).into()).collect()
    }

    /// One of them.
    ///
    /// # Errors
    /// [`ClientError::ProcessNotFound`]: never spawned by this handle, or ended and pruned.
    #[doc(alias = "getProcess")]
    pub fn get_process(&self, pid: u32) -> Result<SpawnedProcessInfo, ClientError> {
        self.spawned_entry(pid).map(|entry| (&*entry).into())
    }

    pub(super) fn spawned_entry(&self, pid: u32) -> Result<Arc<Entry>, ClientError> {
        let id = Some(ProcessId(pid)).filter(|id| !id.is_exec());
        id.and_then(|id| self.vm().entry(id)).ok_or(ClientError::ProcessNotFound(pid))
    }
}

/// Spawned entries in spawn order: synthetic pids rise.
pub(super) fn spawned(vm: &Vm) -> Vec<Arc<Entry>> {
    let mut entries = vm.entries();
    entries.retain(|entry| !entry.id.is_exec());
    entries.sort_by_key(|entry| entry.id);
    entries
}

/// Makes room for one more than `spawned`: at the limit the oldest ended entries that no handle holds are forgotten,
/// live ones never. Close to it those that cannot be forgotten are counted, to warn of them.
pub(super) fn admit(vm: &Vm, spawned: &mut u64) -> Result<(), ClientError> {
    vm.check_alive()?;
    let (observed, limit) = (*spawned, vm.limits.spawned);
    if (observed + 1) * 100 < limit * Edge::WARN_PERCENT {
        vm.warnings.spawned(observed + 1, limit);
        return Ok(());
    }
    let mut prunable = self::spawned(vm);
    prunable.retain(|entry| entry.exit.get().is_some() && !entry.is_pinned());
    vm.warnings.spawned(observed + 1 - prunable.len() as u64, limit);
    let excess = usize::try_from((observed + 1).saturating_sub(limit)).unwrap_or(usize::MAX);
    if prunable.len() < excess {
        return Err(ClientError::ResourceLimit { name: SPAWNED_PROCESSES, limit, observed });
    }
    for entry in prunable.iter().take(excess) {
        vm.forget(entry);
        *spawned -= 1;
    }
    Ok(())
}
