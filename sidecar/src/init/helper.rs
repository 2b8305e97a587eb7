//! Reading `/proc`: a short-lived helper, forked from init, reads and writes rows to a file the sidecar passed. Init
//! itself neither reads what a guest can make slow to read, nor holds the rows.

use std::collections::BTreeMap;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};

use super::clock;
use super::messages::{ReadOutcome, Reading, Reply};
use super::rows::Writer;
use super::server::{Gone, Server};
use crate::sys::clone::{Forked, fork};
use crate::sys::exec::exit_now;
use crate::sys::wait::{ChangeKind, reaped_io};
use crate::sys::{descriptors, signals};

/// Helpers at once; the next request is refused with EAGAIN.
pub(crate) const MAX_HELPERS: usize = 8;

/// A guest of the same uid can kill a helper; this often another one is started.
const MAX_ATTEMPTS: u32 = 3;

/// Exit status of a helper.
const COMPLETE: i32 = 0;
const TRUNCATED: i32 = 1;
const FAILED: i32 = 2;
const NO_SUCH_PROCESS: i32 = 3;

/// A helper at work.
#[derive(Debug)]
pub(super) struct Helper {
    request: ReadRequest,
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
struct ReadRequest {
    token: u64,
    what: Reading,
    max_bytes: u64,
    file: OwnedFd,
}

/// Helpers by pid.
pub(super) type Helpers = BTreeMap<i32, Helper>;

impl Server<'_> {
    /// Starts a helper.
    pub(super) fn read(
        &mut self,
        token: u64,
        what: Reading,
        max_bytes: u64,
        deadline: Duration,
        descriptors: Vec<OwnedFd>,
    ) -> Result<(), Gone> {
        let Ok([file]) = <[OwnedFd; 1]>::try_from(descriptors) else {
            return self.not_read(token, Errno::BADF);
        };
        if self.helpers.len() >= MAX_HELPERS {
            return self.not_read(token, Errno::AGAIN);
        }
        self.machine_start_ms = clock::machine_start_ms(self.machine_start_ms);
        if matches!(what, Reading::Usage) {
            self.reaped_io = reaped_io();
        }
        let request = ReadRequest { token, what, max_bytes, file };
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
            Err(errno) => self.not_read(helper.request.token, errno),
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
            ChangeKind::Exited { code, .. } => match i32::from(code) {
                COMPLETE => self.reply(&Reply::Read { token, outcome: ReadOutcome::Complete }),
                TRUNCATED => self.reply(&Reply::Read { token, outcome: ReadOutcome::Truncated }),
                NO_SUCH_PROCESS => self.not_read(token, Errno::SRCH),
                _ => self.not_read(token, Errno::IO),
            },
            ChangeKind::Killed { .. } if helper.given_up => self.not_read(token, Errno::TIMEDOUT),
            ChangeKind::Killed { .. } if helper.attempts < MAX_ATTEMPTS => {
                self.start_helper(Helper { attempts: helper.attempts + 1, ..helper })
            }
            _ => self.not_read(token, Errno::INTR),
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
    fn help(&self, request: &ReadRequest) -> i32 {
        match self.write_all(request) {
            Ok(()) => COMPLETE,
            Err(Errno::NOSPC) => TRUNCATED,
            Err(Errno::SRCH) => NO_SUCH_PROCESS,
            Err(_) => FAILED,
        }
    }

    /// ENOSPC if not all rows fitted.
    fn write_all(&self, request: &ReadRequest) -> Result<(), Errno> {
        signals::unblock_all()?;
        descriptors::close_all_but([request.file.as_raw_fd()])?;
        let members = self.members.again()?;
        let file = request.file.try_clone().map_err(|_| Errno::MFILE)?;
        let mut rows = Writer::new(file, request.max_bytes);
        let written = match request.what {
            Reading::Table { after } => self.write_table(&members, after, &mut rows),
            Reading::Cmdline { of, offset } => self.write_cmdline(&members, of, offset, &mut rows),
            Reading::Usage => self.write_usage(&members, &mut rows),
            Reading::FileHandles { of, after } => self.write_file_handles(&members, of, after, &mut rows),
        };
        match written {
            Ok(()) | Err(Errno::NOSPC) => rows.finish().and(written),
            Err(errno) => Err(errno),
        }
    }

    fn not_read(&mut self, token: u64, errno: Errno) -> Result<(), Gone> {
        self.reply(&Reply::Read { token, outcome: ReadOutcome::Failed { errno: errno.raw_os_error() } })
    }
}
