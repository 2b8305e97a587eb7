//! The VM's process table: what init reads from the kernel, and the spawned processes that have exited.

use std::{collections::VecDeque, time::Duration};

use agentvm_wire::{
    bytes64,
    error::{Code, Rejection},
    id::ProcessId,
    process::{ProcessRow, ProcessSnapshot, ProcessStatus, ProcessTable},
};

use super::Vm;
use crate::{
    errno,
    init::{ListError, Row},
    process::{DRIVER, Process},
};

/// Rows of exited processes that are kept; the oldest goes first.
const MAX_EXITED: usize = 256;
/// How large a page is unless the client says otherwise.
const PAGE_BYTES: u64 = 1 << 20;
/// How many bytes of rows init may write.
const MAX_TABLE_BYTES: usize = 64 << 20;
/// How long init's helper may take to read the kernel's table.
const DEADLINE: Duration = Duration::from_secs(5);

/// The spawned processes that have exited, oldest first.
#[derive(Debug, Default)]
pub(super) struct Exited(VecDeque<ProcessRow>);

impl Exited {
    /// What stood behind an `exec` is not remembered: nobody knows it by a pid.
    pub(super) fn remembers(process: ProcessId) -> bool {
        process.0 < ProcessId::FIRST_EXEC
    }

    pub(super) fn keep(&mut self, row: Option<ProcessRow>) {
        let Some(row) = row else { return };
        if self.0.len() == MAX_EXITED {
            self.0.pop_front();
        }
        self.0.push_back(row);
    }

    pub(super) fn contains(&self, process: ProcessId) -> bool {
        self.0.iter().any(|row| row.process == Some(process))
    }
}

impl Vm {
    /// One page of the table.
    pub(super) async fn read_table(&self, page: ProcessSnapshot) -> Result<ProcessTable, Rejection> {
        let listed =
            self.commands.list(MAX_TABLE_BYTES, DEADLINE).await.map_err(|error| rejection(&error))?;
        let state = self.lock();
        let live = listed.into_iter().map(|row| {
            let root = row.process.and_then(|process| state.processes.get(&process));
            let itself = root.filter(|root| root.pid == row.pid);
            // The kernel counts from the fork, and in ticks; the start that was told is exact.
            let started_at_ms = itself.map_or(row.started_at_ms, Process::started_at_ms);
            wire_row(row, itself.map(|process| process.id), started_at_ms)
        });
        let mut rows: Vec<ProcessRow> = live.chain(state.exited.0.iter().cloned()).collect();
        drop(state);
        rows.sort_by_key(|row| row.pid);
        rows.retain(|row| page.after.is_none_or(|after| row.pid > after));
        Ok(cut(rows, page.max_bytes.unwrap_or(PAGE_BYTES)))
    }
}

/// As many rows as fit, at least one; rows of one pid stay together, because the next page begins behind a pid.
fn cut(mut rows: Vec<ProcessRow>, max_bytes: u64) -> ProcessTable {
    let mut size = 0;
    let mut end = rows.len();
    for (index, row) in rows.iter().enumerate() {
        size += serde_json::to_string(row).map_or(0, |text| text.len() as u64 + 1);
        if size > max_bytes && index > 0 && rows[index - 1].pid != row.pid {
            end = index;
            break;
        }
    }
    let next = (end < rows.len()).then(|| rows[end - 1].pid);
    rows.truncate(end);
    ProcessTable { rows, next }
}

fn wire_row(row: Row, process: Option<ProcessId>, started_at_ms: u64) -> ProcessRow {
    let (args, args_b64) = bytes64::split_all(row.args);
    ProcessRow {
        process,
        root: row.process,
        pid: row.pid,
        ppid: row.ppid,
        pgid: row.pgid,
        sid: row.sid,
        driver: DRIVER.to_owned(),
        command: String::from_utf8_lossy(&row.comm).into_owned(),
        args,
        args_b64,
        args_truncated: row.args_truncated,
        cwd: row.cwd.map(|cwd| String::from_utf8_lossy(&cwd).into_owned()),
        status: match row.state {
            b'T' | b't' => ProcessStatus::Stopped,
            b'Z' | b'X' | b'x' => ProcessStatus::Zombie,
            _ => ProcessStatus::Running,
        },
        exit_code: None,
        signal: None,
        started_at_ms,
        exited_at_ms: None,
        rss_bytes: row.rss_bytes,
        cpu_time_us: row.cpu_time_us,
    }
}

fn rejection(error: &ListError) -> Rejection {
    let code = match error {
        ListError::TimedOut(_) => Code::DEADLINE_EXCEEDED,
        ListError::TooLarge { .. } => Code::TOO_LARGE,
        ListError::Ended => return Rejection::vm_not_found(),
        ListError::Failed { errno } => Code::from(errno::name(*errno)),
    };
    Rejection::new(code, error.to_string())
}
