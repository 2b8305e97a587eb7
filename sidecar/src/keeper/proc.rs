//! What `/proc` of the host tells of a process.

use std::fs::File;
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{CWD, Mode, OFlags, openat, readlinkat};
use rustix::io::Errno;
use rustix::process::Pid;

use super::sighting::{Executed, Key, MAX_TEXT_BYTES, Subject};
use crate::init::{numbers as numbers_in, start_ticks};

/// `PF_FORKNOEXEC`: a process that has executed nothing since it was forked.
pub(super) const FORKED_ONLY: u64 = 0x40;

/// Bytes of the pids of one thread's children.
const MAX_CHILDREN_BYTES: usize = 16 << 10;

/// The host's `/proc`.
#[derive(Debug)]
pub(crate) struct Proc {
    folder: OwnedFd,
    /// Something could not be looked up for want of descriptors or memory.
    ran_short: AtomicBool,
}

/// A process or thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Seen {
    /// Itself; of a thread, its process.
    pub(super) who: Subject,
    /// It is not a process's main thread.
    pub(super) is_thread: bool,
    /// It, or its main thread, has ended.
    pub(super) is_zombie: bool,
    /// As the host counts.
    pub(super) parent: u32,
}

impl Proc {
    pub(crate) fn open() -> rustix::io::Result<Self> {
        let folder = openat(CWD, "/proc", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Self { folder, ran_short: AtomicBool::new(false) })
    }

    /// Whether somebody who is there could not be seen since this was asked last.
    pub(super) fn ran_short(&self) -> bool {
        self.ran_short.swap(false, Ordering::Relaxed)
    }

    /// Looks at a process, a zombie too, or a thread.
    pub(super) fn see(&self, pid: Pid) -> Option<Seen> {
        let pid = pid.as_raw_nonzero();
        let mut buffer = [0; 4096];
        let status = self.read(&format!("{pid}/status"), &mut buffer)?;
        let number = |name| Some(numbers(status, name)?.0);
        let (process, parent) = (number("Tgid:")?, number("PPid:")?);
        let pid_inside = numbers(status, "NSpid:")?.1;
        let is_zombie = status.windows(8).any(|window| window == b"State:\tZ");
        let is_thread = process != pid.get().unsigned_abs();
        let stat = self.read(&format!("{process}/stat"), &mut buffer)?;
        let key = Key { host_pid: process, start_ticks: start_ticks(stat)? };
        Some(Seen { who: Subject { key, pid: Some(pid_inside) }, is_thread, is_zombie, parent })
    }

    /// The program a process executes.
    pub(crate) fn executed(&self, pid: Pid) -> Executed {
        let link = |name| self.link(pid, name).unwrap_or_default();
        let (mut path, mut cwd) = (link("exe"), link("cwd"));
        let mut truncated = path.len() + cwd.len() > MAX_TEXT_BYTES;
        path.truncate(MAX_TEXT_BYTES / 2);
        cwd.truncate(MAX_TEXT_BYTES / 2);
        let mut room = [0; MAX_TEXT_BYTES];
        let room = &mut room[path.len() + cwd.len()..];
        let all = room.len();
        let text = self.read(&format!("{}/cmdline", pid.as_raw_nonzero()), room).unwrap_or_default();
        truncated |= text.len() == all;
        let argv = text.strip_suffix(&[0]).unwrap_or(text).split(|byte| *byte == 0).map(<[u8]>::to_vec);
        Executed { path, argv: argv.filter(|_| !text.is_empty()).collect(), cwd, truncated }
    }

    /// Where a link of a process or thread points to.
    pub(super) fn link(&self, pid: Pid, name: &str) -> Option<Vec<u8>> {
        let path = format!("{}/{name}", pid.as_raw_nonzero());
        readlinkat(&self.folder, path, Vec::with_capacity(256)).ok().map(std::ffi::CString::into_bytes)
    }

    /// What execution changes of a process: it has not executed anything since it was forked, and where the stack, the
    /// arguments and the environment of its program lie. Zeros, but for the first, once it has ended.
    pub(super) fn image(&self, pid: Pid) -> Option<[u64; 4]> {
        let field = self.stat_fields(pid)?;
        Some([field(9)? & FORKED_ONLY, field(28)?, field(48)?, field(51)?])
    }

    /// How a process has ended that was not reaped yet: its wait status.
    pub(super) fn zombie(&self, pid: Pid) -> Option<i32> {
        let field = self.stat_fields(pid)?;
        i32::try_from(field(52)?).ok()
    }

    /// All threads of a process, the main one first.
    pub(super) fn threads(&self, pid: Pid) -> Vec<Pid> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let tasks = openat(&self.folder, format!("{}/task", pid.as_raw_nonzero()), flags, Mode::empty());
        let threads = tasks.and_then(|tasks| numbers_in(&tasks)).unwrap_or_default();
        threads.into_iter().filter_map(pid_of).collect()
    }

    /// The thread that traces a thread.
    pub(super) fn tracer(&self, thread: Pid) -> Option<Pid> {
        let mut buffer = [0; 4096];
        let status = self.read(&format!("{}/status", thread.as_raw_nonzero()), &mut buffer)?;
        pid_of(numbers(status, "TracerPid:")?.0)
    }

    /// Children of all threads of a process.
    pub(super) fn children(&self, pid: Pid) -> Vec<Pid> {
        let mut children = Vec::new();
        for thread in self.threads(pid) {
            let (pid, thread) = (pid.as_raw_nonzero(), thread.as_raw_nonzero());
            let mut buffer = vec![0; MAX_CHILDREN_BYTES];
            let text = self.read(&format!("{pid}/task/{thread}/children"), &mut buffer).unwrap_or_default();
            let pids = str::from_utf8(text).unwrap_or_default().split_ascii_whitespace();
            children.extend(pids.filter_map(|pid| Pid::from_raw(pid.parse().ok()?)));
        }
        children
    }

    /// Fields of `proc_pid_stat(5)` by their number there, from the third on.
    fn stat_fields(&self, pid: Pid) -> Option<impl Fn(usize) -> Option<u64>> {
        let mut buffer = [0; 1024];
        let line = self.read(&format!("{}/stat", pid.as_raw_nonzero()), &mut buffer)?;
        let end = line.iter().rposition(|byte| *byte == b')')?;
        let fields = str::from_utf8(line.get(end + 2..)?).ok()?.to_owned();
        Some(move |number: usize| fields.split_ascii_whitespace().nth(number - 3)?.parse().ok())
    }

    /// As much as fits of a file.
    fn read<'a>(&self, path: &str, buffer: &'a mut [u8]) -> Option<&'a [u8]> {
        let opened = openat(&self.folder, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
        if matches!(opened, Err(Errno::MFILE | Errno::NFILE | Errno::NOMEM)) {
            self.ran_short.store(true, Ordering::Relaxed);
        }
        let mut file = File::from(opened.ok()?);
        let mut filled = 0;
        while filled < buffer.len() {
            match file.read(&mut buffer[filled..]) {
                Ok(0) => break,
                Ok(len) => filled += len,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(_) => return None,
            }
        }
        Some(&buffer[..filled])
    }
}

/// A pid as it comes in messages.
pub(crate) fn pid_of(raw: u32) -> Option<Pid> {
    i32::try_from(raw).ok().and_then(Pid::from_raw)
}

/// The first and the last number of a line of `proc_pid_status(5)`.
fn numbers(status: &[u8], name: &str) -> Option<(u32, u32)> {
    let line = status.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(name.as_bytes()))?;
    let mut numbers = str::from_utf8(line).ok()?.split_ascii_whitespace().map(str::parse);
    let first = numbers.next()?.ok()?;
    Some((first, numbers.next_back().map_or(Ok(first), |last| last).ok()?))
}
