//! The VM's process table: what really runs in there, with spawned processes shown by their synthetic pids.

use std::collections::HashMap;

use agentvm_wire::{
    bytes64,
    id::ProcessId,
    message::{Request, Response},
    process::{ProcessRef, ProcessRow, ProcessSnapshot, ProcessStatus},
};
use serde::Serialize;

use crate::{agent_os::AgentOs, error::ClientError};

/// A real pid at or above the first synthetic one (where the kernel could not be told to stay below) is shown so much
/// higher, so that the two never meet.
const COLLISION_OFFSET: u32 = 1_000_000_000;

/// One process of the VM.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ProcessInfo {
    /// Process id: the synthetic one for spawned processes, the VM's own for all others.
    pub pid: u32,
    /// Parent; 0 for init.
    pub ppid: u32,
    /// Process group.
    pub pgid: u32,
    /// Session.
    pub sid: u32,
    /// Who runs it.
    pub driver: String,
    /// The kernel's short name of the program; for an exited process the program as it was given.
    pub command: String,
    /// Arguments with argv\[0\], exact; bytes that are not UTF-8 become U+FFFD here.
    pub args: Vec<String>,
    /// `args` was cut, at 64 KiB or 4096 arguments.
    pub args_truncated: bool,
    /// Working directory; empty where it cannot be read.
    pub cwd: String,
    /// What it does.
    pub status: ProcessStatus,
    /// For `exited`: exit status, or 128 + n for death by signal n.
    pub exit_code: Option<i32>,
    /// Wall clock, epoch milliseconds.
    #[serde(rename = "startTime")]
    pub start_time_ms: u64,
    /// Wall clock, epoch milliseconds; for `exited`.
    #[serde(rename = "exitTime")]
    pub exit_time_ms: Option<u64>,
    /// Resident set, bytes.
    pub rss_bytes: u64,
    /// CPU time so far, microseconds.
    pub cpu_time_us: u64,
}

impl AgentOs {
    /// Every process of the VM, one row each, sorted by pid: init, what was spawned or executed, their descendants,
    /// and the last 256 spawned ones that have exited.
    ///
    /// ```no_run
    /// # async fn example(vm: &agentvm_sdk::AgentOs) -> Result<(), agentvm_sdk::ClientError> {
    /// for row in vm.all_processes().await? {
    ///     println!("{:>10} {:>10} {:?} {}", row.pid, row.ppid, row.status, row.args.join(" "));
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`ClientError::Disposed`] and its kin; [`ClientError::Rejected`] with `deadline_exceeded` if the guest keeps
    /// the table from being read.
    ///
    /// # Cancel safety
    /// Cancel safe: reads only.
    #[doc(alias = "allProcesses")]
    pub async fn all_processes(&self) -> Result<Vec<ProcessInfo>, ClientError> {
        let mut rows = Vec::new();
        let mut after = None;
        loop {
            let request = Request::ProcessSnapshot(ProcessSnapshot { after, max_bytes: None });
            match self.vm().call(&request).await? {
                Response::ProcessTable(table) => {
                    rows.extend(table.rows);
                    after = table.next;
                }
                other => return Err(ClientError::unexpected("process_snapshot", &other)),
            }
            if after.is_none() {
                return Ok(table(rows));
            }
        }
    }
}

/// Rows as the kernel shows them, turned into the table.
pub(super) fn table(rows: Vec<ProcessRow>) -> Vec<ProcessInfo> {
    let shown = ShownPids::new(&rows);
    let mut table: Vec<ProcessInfo> = rows.into_iter().map(|row| shown.info(row)).collect();
    table.sort_by_key(|info| info.pid);
    table
}

/// How pids of the VM are shown.
struct ShownPids(HashMap<u32, u32>);

impl ShownPids {
    /// Live rows count over exited ones, whose pid the kernel may have given to another process since.
    fn new(rows: &[ProcessRow]) -> Self {
        let (exited, live): (Vec<_>, Vec<_>) =
            rows.iter().partition(|row| row.status == ProcessStatus::Exited);
        let mut shown: HashMap<u32, u32> =
            exited.iter().filter_map(|row| Some((row.pid, synthetic(row)?))).collect();
        for row in live {
            match synthetic(row) {
                Some(pid) => shown.insert(row.pid, pid),
                None => shown.remove(&row.pid),
            };
        }
        Self(shown)
    }

    fn show(&self, pid: u32) -> u32 {
        match self.0.get(&pid) {
            Some(synthetic) => *synthetic,
            None if pid >= ProcessId::FIRST_SPAWNED => pid.saturating_add(COLLISION_OFFSET),
            None => pid,
        }
    }

    fn info(&self, row: ProcessRow) -> ProcessInfo {
        let args = bytes64::join_all(row.args.clone(), row.args_b64.clone());
        ProcessInfo {
            pid: synthetic(&row).unwrap_or_else(|| self.show(row.pid)),
            ppid: self.show(row.ppid),
            pgid: self.show(row.pgid),
            sid: self.show(row.sid),
            driver: row.driver,
            command: row.command,
            args: args.iter().map(|arg| String::from_utf8_lossy(arg).into_owned()).collect(),
            args_truncated: row.args_truncated,
            cwd: row.cwd.unwrap_or_default(),
            status: row.status,
            exit_code: row.exit_code,
            start_time_ms: row.started_at_ms,
            exit_time_ms: row.exited_at_ms,
            rss_bytes: row.rss_bytes,
            cpu_time_us: row.cpu_time_us,
        }
    }
}

/// Whom a pid as shown means.
pub(super) fn reference(shown: u32) -> ProcessRef {
    match shown.checked_sub(COLLISION_OFFSET) {
        Some(pid) if pid >= ProcessId::FIRST_SPAWNED && !ProcessId(shown).is_exec() => ProcessRef::Pid(pid),
        _ if shown >= ProcessId::FIRST_SPAWNED => ProcessRef::Process(ProcessId(shown)),
        _ => ProcessRef::Pid(shown),
    }
}

/// The pid a spawned process is known by; what stands behind `exec` keeps its own.
fn synthetic(row: &ProcessRow) -> Option<u32> {
    row.process.filter(|process| !process.is_exec()).map(|process| process.0)
}
