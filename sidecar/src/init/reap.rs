//! Reaping: init is the parent of everything in the VM that has lost its own, and tells the sidecar about the end of
//! what it started.
//!
//! A SIGCHLD is only a hint to look; anybody in the VM can forge one.

use std::time::{SystemTime, UNIX_EPOCH};

use rustix::process::{Pid, Signal, kill_process};

use super::messages::{Exit, Reply};
use super::server::{Gone, Server};
use super::start::{self, Go, StartFault};
use super::table::{Mark, Stage};
use crate::sys::wait::{Change, ChangeKind, detach, next_change};

impl Server<'_> {
    /// Takes every change there is.
    pub(super) fn reap_all(&mut self) -> Result<(), Gone> {
        // Emptied first: a change after this makes it readable again.
        let mut record = [0; size_of::<libc::signalfd_siginfo>()];
        while rustix::io::read(self.children(), &mut record).is_ok() {}
        while let Ok(Some(change)) = next_change() {
            self.take(change)?;
        }
        Ok(())
    }

    fn take(&mut self, Change { pid, kind }: Change) -> Result<(), Gone> {
        self.helper_changed(pid, kind)?;
        if let Some(exit) = exit(kind) {
            self.spare_ended(pid, exit);
            return self.ended(pid, exit);
        }
        match kind {
            ChangeKind::Stopped => {
                // A guest may stop itself and others of its own, but not what still runs our code.
                if self.is_helper(pid) || self.is_waiting_spare(pid) || self.still_starts(pid)? {
                    // It is our unreaped child, so the pid is its own.
                    let _ = kill_process(pid, Signal::CONT);
                }
                Ok(())
            }
            ChangeKind::Trapped { signal } => {
                // A child that asked to be traced by its parent: init traces nobody. What it stopped with is passed
                // on, except the two that only told a tracer something.
                let passed = if [libc::SIGTRAP, libc::SIGSTOP].contains(&signal) { 0 } else { signal };
                detach(pid, passed);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Whether a child has not executed its command yet; its socket knows that before the event loop does.
    fn still_starts(&mut self, pid: Pid) -> Result<bool, Gone> {
        let Some(Stage::Starting { socket, .. }) = self.table.by_pid(pid).map(|process| &process.stage)
        else {
            return Ok(false);
        };
        if start::is_decided(socket) {
            self.finish_start(pid)?;
            return Ok(false);
        }
        Ok(true)
    }

    pub(super) fn ended(&mut self, pid: Pid, exit: Exit) -> Result<(), Gone> {
        // The end of a child also ends its socket: what is in there is the outcome of its start.
        self.finish_start(pid)?;
        match self.table.remove(pid) {
            Some(process) => self.reply(&Reply::Exited { process: process.id, exit }),
            // An orphan, or a start that failed and was told.
            None => Ok(()),
        }
    }

    /// Reads the outcome of every start whose socket has ended.
    pub(super) fn finish_decided_starts(&mut self) -> Result<(), Gone> {
        let decided: Vec<Pid> = self
            .table
            .iter()
            .filter(|process| match &process.stage {
                Stage::Starting { socket, .. } => start::is_decided(socket),
                Stage::Running => false,
            })
            .map(|process| process.pid)
            .collect();
        decided.into_iter().try_for_each(|pid| self.finish_start(pid))
    }

    /// Reads the outcome of a start whose socket has ended; nothing if that was done before.
    pub(super) fn finish_start(&mut self, pid: Pid) -> Result<(), Gone> {
        let Some(process) = self.table.by_pid(pid) else { return Ok(()) };
        let Stage::Starting { socket, deadline, held, again, cpu_limit, expired } =
            std::mem::replace(&mut process.stage, Stage::Running)
        else {
            return Ok(());
        };
        let id = process.id;
        // Dropping the socket also takes it out of the epoll set: no copy of it is left.
        let outcome = start::outcome(&socket);
        drop(socket);
        if let Ok(go) = outcome {
            process.started_at_ms = go.started_at_ms;
        }
        if self.handing == Some(pid) {
            self.handing = None;
            // One that goes has taken it.
            if outcome.is_err() {
                self.take_back();
            }
        }
        // Nobody wants a VM that is about to end to start anything anew, or what is late.
        let again = again.filter(|_| !self.terminating && !expired);
        match (outcome, again) {
            (Ok(Go { mark, started_at_ms, start_ticks }), _) => {
                self.table.set_mark(id, Mark(mark));
                let pid = pid.as_raw_nonzero().get().unsigned_abs();
                self.reply(&Reply::Started { process: id, pid, started_at_ms, start_ticks })?;
                self.spare_is_due = true;
                if let Some(limit) = cpu_limit {
                    self.limit_cpu(id, limit)?;
                }
                if expired {
                    self.signal_tree(None, id, Signal::KILL)?;
                }
                for signal in held {
                    self.signal(signal.token, id, signal.signal, signal.target)?;
                }
                Ok(())
            }
            // A guest killed the spare, perhaps before it was handed the request; or a keeper has gone.
            (Err(fault @ (StartFault::WORDLESS | StartFault::FORSAKEN)), Some(mut request)) => {
                self.table.remove(pid);
                if fault == StartFault::FORSAKEN {
                    start::unwatch(&mut request);
                }
                self.start_fresh(id, request, deadline)?;
                for signal in held {
                    self.signal(signal.token, id, signal.signal, signal.target)?;
                }
                Ok(())
            }
            (Err(fault), _) => {
                let fault = if expired && fault == StartFault::WORDLESS { StartFault::LATE } else { fault };
                // The child is about to exit; it is reaped as an orphan.
                self.table.remove(pid);
                self.reply(&Reply::StartFailed { process: id, step: fault.step, errno: fault.errno })?;
                for signal in held {
                    self.reply(&Reply::Signaled { token: signal.token, delivered: 0 })?;
                }
                Ok(())
            }
        }
    }
}

/// How a child has ended; `None` if it has not.
pub(super) fn exit(kind: ChangeKind) -> Option<Exit> {
    let (exit_code, signal, core_dumped, usage) = match kind {
        ChangeKind::Exited { code, usage } => (Some(code), None, false, usage),
        ChangeKind::Killed { signal, core_dumped, usage } => (None, Some(signal), core_dumped, usage),
        ChangeKind::Stopped | ChangeKind::Trapped { .. } | ChangeKind::Other => return None,
    };
    Some(Exit {
        exit_code,
        signal,
        core_dumped,
        user_us: usage.user_us,
        sys_us: usage.system_us,
        max_rss_bytes: usage.max_rss_bytes,
        exited_at_ms: now_ms(),
    })
}

#[expect(clippy::disallowed_methods, reason = "it tells when, not how long")]
pub(crate) fn now_ms() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .ok()
        .and_then(|since| u64::try_from(since.as_millis()).ok())
        .unwrap_or(0)
}
