//! What `/proc` of the host tells of a process.

use std::fs::File;
use std::io::Read as _;
use std::os::fd::OwnedFd;

use rustix::fs::{CWD, Mode, OFlags, openat, readlinkat};
use rustix::process::Pid;

use super::sighting::{Executed, Key, MAX_TEXT_BYTES, Subject};
use crate::init::start_ticks;

/// The host's `/proc`.
#[derive(Debug)]
pub(super) struct Proc(OwnedFd);

/// A process or thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Seen {
    /// Itself; of a thread, its process.
    pub(super) who: Subject,
    /// It is not a process's main thread.
    pub(super) is_thread: bool,
    /// As the host counts.
    pub(super) parent: u32,
}

impl Proc {
    pub(super) fn open() -> rustix::io::Result<Self> {
        openat(CWD, "/proc", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).map(Self)
    }

    /// Looks at a process, a zombie too, or a thread.
    pub(super) fn see(&self, pid: Pid) -> Option<Seen> {
        let pid = pid.as_raw_nonzero();
        let mut buffer = [0; 4096];
        let status = self.read(&format!("{pid}/status"), &mut buffer)?;
        let number = |name| Some(numbers(status, name)?.0);
        let (process, parent) = (number("Tgid:")?, number("PPid:")?);
        let pid_inside = numbers(status, "NSpid:")?.1;
        let is_thread = process != pid.get().unsigned_abs();
        let stat = self.read(&format!("{process}/stat"), &mut buffer)?;
        let key = Key { host_pid: process, start_ticks: start_ticks(stat)? };
        Some(Seen { who: Subject { key, pid: pid_inside }, is_thread, parent })
    }

    /// The program a process executes.
    pub(super) fn executed(&self, pid: Pid) -> Executed {
        let pid = pid.as_raw_nonzero();
        let link = |name: &str| {
            let target = readlinkat(&self.0, format!("{pid}/{name}"), Vec::with_capacity(256));
            target.map(std::ffi::CString::into_bytes).unwrap_or_default()
        };
        let (mut path, mut cwd) = (link("exe"), link("cwd"));
        let mut truncated = path.len() + cwd.len() > MAX_TEXT_BYTES;
        path.truncate(MAX_TEXT_BYTES / 2);
        cwd.truncate(MAX_TEXT_BYTES / 2);
        let mut room = [0; MAX_TEXT_BYTES];
        let room = &mut room[path.len() + cwd.len()..];
        let all = room.len();
        let text = self.read(&format!("{pid}/cmdline"), room).unwrap_or_default();
        truncated |= text.len() == all;
        let argv = text.strip_suffix(&[0]).unwrap_or(text).split(|byte| *byte == 0).map(<[u8]>::to_vec);
        Executed { path, argv: argv.filter(|_| !text.is_empty()).collect(), cwd, truncated }
    }

    /// As much as fits of a file.
    fn read<'a>(&self, path: &str, buffer: &'a mut [u8]) -> Option<&'a [u8]> {
        let mut file =
            File::from(openat(&self.0, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?);
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

/// The first and the last number of a line of `proc_pid_status(5)`.
fn numbers(status: &[u8], name: &str) -> Option<(u32, u32)> {
    let line = status.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(name.as_bytes()))?;
    let mut numbers = str::from_utf8(line).ok()?.split_ascii_whitespace().map(str::parse);
    let first = numbers.next()?.ok()?;
    Some((first, numbers.next_back().map_or(Ok(first), |last| last).ok()?))
}
