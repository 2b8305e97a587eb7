//! The VM's process table: what init reads from the kernel, and the spawned processes that have exited.

use std::{
    collections::{HashSet, VecDeque},
    sync::Arc,
};

use agentvm_wire::{
    bytes64,
    error::Rejection,
    id::{ProcessId, RequestId},
    message::Response,
    process::{ProcessExited, ProcessRow, ProcessSnapshot, ProcessStatus, ProcessTable},
};

use super::{Vm, reading::rejection};
use crate::{
    init::{Reading, Row},
    process::{DRIVER, Process},
};

/// Exited processes that are remembered, of each kind; the oldest goes first.
const MAX_EXITED: usize = 256;
/// How large a page is unless the client says otherwise.
const PAGE_BYTES: u64 = 1 << 20;
/// How large a page may be at most: an answer is far below the largest message, and one row always fits.
const MAX_PAGE_BYTES: u64 = 4 << 20;
/// How many bytes of rows init may write for a page at least: more than one row has.
const MIN_ROWS_BYTES: usize = 256 << 10;

/// The processes that have exited, oldest first. Those behind an `exec` have no row: nobody knows them by a pid. Their
/// descendants can still be killed.
#[derive(Debug, Default)]
pub(super) struct Exited {
    rows: VecDeque<ProcessRow>,
    execs: VecDeque<ProcessId>,
}

impl Exited {
    pub(super) fn keep(&mut self, process: &Process, exited: &ProcessExited) {
        match process.exited_row(exited) {
            Some(row) => push(&mut self.rows, row),
            None => push(&mut self.execs, process.id),
        }
    }

    pub(super) fn contains(&self, process: ProcessId) -> bool {
        self.execs.contains(&process) || self.rows.iter().any(|row| row.process == Some(process))
    }
}

fn push<T>(queue: &mut VecDeque<T>, last: T) {
    if queue.len() == MAX_EXITED {
        queue.pop_front();
    }
    queue.push_back(last);
}

impl Vm {
    pub(crate) fn snapshot(self: &Arc<Self>, request: RequestId, page: ProcessSnapshot) {
        self.answer_later(request, async move |vm: Arc<Self>| {
            vm.read_table(page).await.map(Response::ProcessTable)
        });
    }

    /// One page of the table.
    async fn read_table(&self, page: ProcessSnapshot) -> Result<ProcessTable, Rejection> {
        let max_bytes = page.max_bytes.unwrap_or(PAGE_BYTES).min(MAX_PAGE_BYTES);
        let rows_bytes = usize::try_from(max_bytes).unwrap_or(usize::MAX).max(MIN_ROWS_BYTES);
        let after = page.after.unwrap_or(0);
        let table = self.read::<Row>(Reading::Table { after }, rows_bytes).await;
        let table = table.map_err(|error| rejection(&error))?;
        let last = table.rows.last().filter(|_| table.more).map(|row| row.pid);
        let state = self.lock();
        let here = |row: &&ProcessRow| row.pid > after && last.is_none_or(|last| row.pid <= last);
        let mut rows: Vec<ProcessRow> = state.exited.rows.iter().filter(here).cloned().collect();
        // One that has ended since it was read has its row already.
        let ended: HashSet<ProcessId> = rows.iter().filter_map(|row| row.process).collect();
        let live = table.rows.into_iter().filter(|row| row.process.is_none_or(|id| !ended.contains(&id)));
        rows.extend(live.map(wire_row));
        drop(state);
        rows.sort_by_key(|row| row.pid);
        Ok(cut(rows, last, max_bytes))
    }
}

/// As many rows as fit, at least one; rows of one pid stay together, because the next page begins behind a pid. `last`
/// is where these rows end if more follow.
fn cut(mut rows: Vec<ProcessRow>, last: Option<u32>, max_bytes: u64) -> ProcessTable {
    let mut size = 0;
    let mut end = rows.len();
    for (index, row) in rows.iter().enumerate() {
        size += serde_json::to_string(row).map_or(0, |text| text.len() as u64 + 1);
        if size > max_bytes && index > 0 && rows[index - 1].pid != row.pid {
            end = index;
            break;
        }
    }
    let next = if end < rows.len() { Some(rows[end - 1].pid) } else { last };
    rows.truncate(end);
    ProcessTable { rows, next }
}

fn wire_row(row: Row) -> ProcessRow {
    let (args, args_b64) = bytes64::split_all(row.args);
    ProcessRow {
        process: row.process,
        root: row.root,
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
        started_at_ms: row.started_at_ms,
        exited_at_ms: None,
        rss_bytes: row.rss_bytes,
        cpu_time_us: row.cpu_time_us,
    }
}

/// What init's helpers wrote, as it goes to the client.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn fuzz_rows(bytes: &[u8]) {
    let rows: Vec<ProcessRow> = crate::init::fuzz::rows(bytes).into_iter().map(wire_row).collect();
    let (some, last) = (!rows.is_empty(), rows.last().map(|row| row.pid));
    let table = cut(rows, last, 100);
    assert_eq!(!table.rows.is_empty(), some, "a page holds a row");
    serde_json::to_string(&table).expect("a table can be written");
}
