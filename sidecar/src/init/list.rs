//! Listing: a short-lived helper, forked from init, reads `/proc` and writes rows to a file the sidecar passed. Init
//! itself neither reads what a guest can make slow to read, nor holds the rows.

use std::collections::BTreeMap;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::time::{Duration, Instant};

use agentvm_wire::id::ProcessId;
use rustix::fs::readlinkat;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, getpid, kill_process};
use rustix::time::{ClockId, clock_gettime};

use super::members::Members;
use super::messages::{ListOutcome, Reply};
use super::rows::{Row, Writer};
use super::server::{Gone, Server};
use super::stat::{self, TICKS_PER_SECOND};
use super::table::Table;
use crate::launch::ZYGOTE_NAME;
use crate::sys::clone::{Forked, fork};
use crate::sys::exec::exit_now;
use crate::sys::wait::ChangeKind;
use crate::sys::{descriptors, signals};

/// Bytes of arguments a row holds at most.
pub(crate) const MAX_ARGS_BYTES: usize = 64 << 10;

/// How many arguments a row holds at most: what reads them keeps each in memory of its own, however short it is.
pub(crate) const MAX_ARGS: usize = 4096;

/// Helpers at once; the next request is refused with EAGAIN.
pub(crate) const MAX_HELPERS: usize = 8;

/// A guest of the same uid can kill a helper; this often another one is started.
const MAX_ATTEMPTS: u32 = 3;

/// Exit status of a helper.
const COMPLETE: i32 = 0;
const TRUNCATED: i32 = 1;
const FAILED: i32 = 2;

/// A helper at work.
#[derive(Debug)]
pub(super) struct Helper {
    request: ListRequest,
    attempts: u32,
    deadline: Instant,
    given_up: bool,
}

impl Helper {
    /// When it is to be given up, if it is not yet.
    pub(super) fn deadline(&self) -> Option<Instant> {
        (!self.given_up).then_some(self.deadline)
    }
}

/// What it was asked.
#[derive(Debug)]
struct ListRequest {
    token: u64,
    after: u32,
    max_bytes: u64,
    file: OwnedFd,
}

/// Helpers by pid.
pub(super) type Helpers = BTreeMap<i32, Helper>;

impl Server<'_> {
    /// Starts a helper.
    pub(super) fn list(
        &mut self,
        token: u64,
        after: u32,
        max_bytes: u64,
        deadline: Duration,
        descriptors: Vec<OwnedFd>,
    ) -> Result<(), Gone> {
        let Ok([file]) = <[OwnedFd; 1]>::try_from(descriptors) else {
            return self.listed(token, Err(Errno::BADF));
        };
        if self.helpers.len() >= MAX_HELPERS {
            return self.listed(token, Err(Errno::AGAIN));
        }
        let request = ListRequest { token, after, max_bytes, file };
        let now = Instant::now();
        let deadline = now.checked_add(deadline).unwrap_or(now);
        self.start_helper(Helper { request, attempts: 1, deadline, given_up: false })
    }

    fn start_helper(&mut self, helper: Helper) -> Result<(), Gone> {
        match fork(self.proof, false) {
            Ok(Forked::Child) => exit_now(self.help(&helper.request)),
            Ok(Forked::Parent(pid)) => {
                self.helpers.insert(pid.as_raw_nonzero().get(), helper);
                Ok(())
            }
            Err(errno) => self.listed(helper.request.token, Err(errno)),
        }
    }

    pub(super) fn is_helper(&self, pid: Pid) -> bool {
        self.helpers.contains_key(&pid.as_raw_nonzero().get())
    }

    /// Takes the end of a child, if it was a helper.
    pub(super) fn helper_changed(&mut self, pid: Pid, kind: ChangeKind) -> Result<(), Gone> {
        if !matches!(kind, ChangeKind::Exited { .. } | ChangeKind::Killed { .. }) {
            return Ok(());
        }
        let Some(helper) = self.helpers.remove(&pid.as_raw_nonzero().get()) else { return Ok(()) };
        let token = helper.request.token;
        match kind {
            ChangeKind::Exited { code, .. } if i32::from(code) == COMPLETE => {
                self.reply(&Reply::Listed { token, outcome: ListOutcome::Complete })
            }
            ChangeKind::Exited { code, .. } if i32::from(code) == TRUNCATED => {
                self.reply(&Reply::Listed { token, outcome: ListOutcome::Truncated })
            }
            ChangeKind::Killed { .. } if helper.given_up => self.listed(token, Err(Errno::TIMEDOUT)),
            ChangeKind::Killed { .. } if helper.attempts < MAX_ATTEMPTS => {
                self.start_helper(Helper { attempts: helper.attempts + 1, ..helper })
            }
            ChangeKind::Killed { .. } => self.listed(token, Err(Errno::INTR)),
            _ => self.listed(token, Err(Errno::IO)),
        }
    }

    /// Kills helpers that are late; their end then tells the sidecar.
    pub(super) fn give_up_late_helpers(&mut self) {
        let now = Instant::now();
        for (pid, helper) in &mut self.helpers {
            if helper.deadline <= now
                && !helper.given_up
                && let Some(pid) = Pid::from_raw(*pid)
            {
                helper.given_up = true;
                // Our unreaped child, so the pid is its own.
                let _ = kill_process(pid, Signal::KILL);
            }
        }
    }

    /// Is the helper: writes the rows and says how it went.
    fn help(&self, request: &ListRequest) -> i32 {
        match self.write_rows(request) {
            Ok(true) => COMPLETE,
            Ok(false) => TRUNCATED,
            Err(_) => FAILED,
        }
    }

    /// Whether all rows fitted.
    fn write_rows(&self, request: &ListRequest) -> Result<bool, Errno> {
        signals::unblock_all()?;
        descriptors::close_all_but(request.file.as_raw_fd())?;
        let members = Members::open()?;
        let reader = Reader { members: &members, table: &self.table, boot_ms: boot_time_ms() };
        let mut writer = Writer::new(request.file.try_clone().map_err(|_| Errno::MFILE)?, request.max_bytes);
        let own = getpid();
        for pid in members.pids()? {
            if pid.as_raw_nonzero().get().unsigned_abs() <= request.after {
                continue;
            }
            if pid == own || self.is_helper(pid) || self.is_spare(pid) {
                continue;
            }
            // One that has ended meanwhile has no row.
            if let Some(row) = reader.row(pid) {
                if is_ours(&row) {
                    continue;
                }
                match writer.push(&row) {
                    Ok(()) => {}
                    Err(Errno::NOSPC) => return writer.finish().map(|()| false),
                    Err(errno) => return Err(errno),
                }
            }
        }
        writer.finish().map(|()| true)
    }

    fn listed(&mut self, token: u64, result: Result<(), Errno>) -> Result<(), Gone> {
        let outcome = match result {
            Ok(()) => ListOutcome::Complete,
            Err(errno) => ListOutcome::Failed { errno: errno.raw_os_error() },
        };
        self.reply(&Reply::Listed { token, outcome })
    }
}

/// Whether it is a child of init that runs our code: a helper forked after this one, or a start that has not executed
/// its command. Only those belong to no tree.
fn is_ours(row: &Row) -> bool {
    row.process.is_none() && row.ppid == 1 && row.comm == ZYGOTE_NAME.as_bytes()
}

/// Reads rows.
struct Reader<'a> {
    members: &'a Members,
    table: &'a Table,
    /// When the machine started, in milliseconds since the epoch.
    boot_ms: u64,
}

impl Reader<'_> {
    fn row(&self, pid: Pid) -> Option<Row> {
        let number = pid.as_raw_nonzero();
        let stat = stat::parse(&self.members.read(&format!("{number}/stat"), 4096)?)?;
        let (args, args_truncated) = self.args(number.get());
        // One of ours may have been forked long before it was started.
        let root = self.table.root(pid).map(|process| process.started_at_ms);
        let forked = self.boot_ms.saturating_add(stat.start_ticks * (1000 / TICKS_PER_SECOND));
        let cwd = readlinkat(self.members.folder(), format!("{number}/cwd"), Vec::new()).ok();
        Some(Row {
            process: self.owner(pid, stat.ppid),
            pid: number.get().unsigned_abs(),
            ppid: stat.ppid,
            pgid: stat.pgid,
            sid: stat.sid,
            comm: stat.comm,
            args,
            args_truncated,
            cwd: cwd.map(std::ffi::CString::into_bytes),
            state: stat.state,
            started_at_ms: root.unwrap_or(forked),
            rss_bytes: stat.rss_pages.saturating_mul(rustix::param::page_size() as u64),
            cpu_time_us: stat.cpu_ticks.saturating_mul(1_000_000 / TICKS_PER_SECOND),
        })
    }

    /// By its mark. A child on its way to exec has one that cannot be read yet, but is known by its pid; a zombie has
    /// none any more, and belongs where its parent does.
    fn owner(&self, pid: Pid, parent: u32) -> Option<ProcessId> {
        let of = |pid: Pid| {
            let by_pid = self.table.root(pid).map(|process| process.id);
            by_pid.or_else(|| self.table.owner_of(self.members.mark(pid)?))
        };
        of(pid).or_else(|| of(Pid::from_raw(i32::try_from(parent).ok()?)?))
    }

    fn args(&self, pid: i32) -> (Vec<Vec<u8>>, bool) {
        let Some(mut text) = self.members.read(&format!("{pid}/cmdline"), MAX_ARGS_BYTES + 1) else {
            return (Vec::new(), false);
        };
        let truncated = text.len() > MAX_ARGS_BYTES;
        text.truncate(MAX_ARGS_BYTES);
        if text.is_empty() {
            return (Vec::new(), truncated);
        }
        if text.last() == Some(&0) {
            text.pop();
        }
        let mut args = text.split(|byte| *byte == 0).map(<[u8]>::to_vec);
        (args.by_ref().take(MAX_ARGS).collect(), truncated || args.next().is_some())
    }
}

fn boot_time_ms() -> u64 {
    let milliseconds = |clock| {
        let now = clock_gettime(clock);
        u64::try_from(now.tv_sec).unwrap_or(0) * 1000 + u64::try_from(now.tv_nsec).unwrap_or(0) / 1_000_000
    };
    milliseconds(ClockId::Realtime).saturating_sub(milliseconds(ClockId::Boottime))
}
