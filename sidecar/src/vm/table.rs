//! The VM's process table: what init reads from the kernel, and the spawned processes that have exited.

use std::{collections::VecDeque, time::Duration};

use agentvm_wire::{
    bytes64,
    error::{Code, Rejection},
    id::ProcessId,
    process::{ProcessRow, ProcessSnapshot, ProcessStatus, ProcessTable},
};

use super::Vm;
use crate::process::DRIVER;

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
    pub(super) fn keep(&mut self, row: ProcessRow) {
        if row.process.is_some_and(|process| process.0 < ProcessId::FIRST_EXEC) {
            if self.0.len() == MAX_EXITED {
                self.0.pop_front();
            }
            self.0.push_back(row);
        }
    }

    pub(super) fn contains(&self, process: ProcessId) -> bool {
        self.0.iter().any(|row| row.process == Some(process))
    }
}

impl Vm {
    /// One page of the table.
    pub(super) async fn read_table(&self, page: ProcessSnapshot) -> Result<ProcessTable, Rejection> {
        let state = self.lock();
        let mut rows: Vec<ProcessRow> = state.exited.0.iter().cloned().collect();
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
