//! What to start, and how it is packed for init.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};

use crate::init::messages::{Memory, Start, Stream, Text};
use crate::isolation::fault::errno_of;

/// A process to start. All text is bytes; none may hold a NUL.
#[derive(Debug)]
pub struct StartSpec {
    /// What to execute; without a slash it is searched in the PATH of `env`.
    pub command: Vec<u8>,
    /// Whether the command is a script: executable or not, it is run by its `#!` line or by a shell.
    pub script: bool,
    /// argv\[0\], if it is not the command.
    pub arg0: Option<Vec<u8>>,
    /// Arguments behind argv\[0\].
    pub args: Vec<Vec<u8>>,
    /// The complete environment.
    pub env: Vec<(Vec<u8>, Vec<u8>)>,
    /// Working directory, absolute; entered as the guest.
    pub cwd: Vec<u8>,
    /// Standard input.
    pub stdin: Stdio,
    /// Standard output.
    pub stdout: Stdio,
    /// Standard error.
    pub stderr: Stdio,
    /// It does not start after this moment.
    pub deadline: Option<Instant>,
    /// CPU time that its tree may use.
    pub cpu_limit: Option<Duration>,
    /// Memory it may use.
    pub memory: Option<MemoryLimit>,
    /// Whether its key shall be told.
    pub observed: bool,
    /// To the keeper that is to see it ([`Keeper::expect`](crate::keeper::Keeper::expect)).
    pub watcher: Option<OwnedFd>,
}

/// What holds a process to a memory limit of its own.
#[derive(Debug)]
pub enum MemoryLimit {
    /// A group, entered here, that counts it and its descendants.
    Group(OwnedFd),
    /// So many bytes of data in each of them, `RLIMIT_DATA`.
    Each(u64),
}

/// A standard stream of a new process.
#[derive(Debug)]
pub enum Stdio {
    /// The VM's own `/dev/null`.
    Null,
    /// This descriptor: a pipe end that the sidecar made.
    Fd(OwnedFd),
    /// Where standard output goes; on standard error only.
    ToStdout,
}

impl StartSpec {
    /// A program without arguments, with nothing to read, nowhere to write, and no limits.
    pub fn new(command: &str, env: Vec<(Vec<u8>, Vec<u8>)>, cwd: &str) -> Self {
        Self {
            command: command.into(),
            script: false,
            arg0: None,
            args: Vec::new(),
            env,
            cwd: cwd.into(),
            stdin: Stdio::Null,
            stdout: Stdio::Null,
            stderr: Stdio::Null,
            deadline: None,
            cpu_limit: None,
            memory: None,
            observed: false,
            watcher: None,
        }
    }

    /// The form init takes, and the descriptors that go with it.
    pub(super) fn pack(self) -> Result<(Start, Vec<OwnedFd>), Errno> {
        let count = |len: usize| u32::try_from(len).map_err(|_| Errno::TOOBIG);
        let (arguments, variables) = (count(self.args.len())?, count(self.env.len())?);
        let mut bytes = Vec::new();
        let arg0 = self.arg0.as_ref().unwrap_or(&self.command);
        for string in [&self.cwd, &self.command, arg0].into_iter().chain(&self.args) {
            bytes.extend_from_slice(string);
            bytes.push(0);
        }
        for (key, value) in &self.env {
            bytes.extend_from_slice(key);
            bytes.push(b'=');
            bytes.extend_from_slice(value);
            bytes.push(0);
        }
        let mut descriptors = Vec::new();
        let text = if bytes.len() <= Text::MAX_INLINE_BYTES {
            Text::Inline(bytes)
        } else {
            descriptors.push(sealed(&bytes)?);
            Text::Memory
        };
        let memory = self.memory.map(|memory| match memory {
            MemoryLimit::Each(bytes) => Memory::Each(bytes),
            MemoryLimit::Group(entrance) => {
                descriptors.push(entrance);
                Memory::Group
            }
        });
        let watched = self.watcher.is_some();
        descriptors.extend(self.watcher);
        let streams = [self.stdin, self.stdout, self.stderr].map(|stream| match stream {
            Stdio::Null => Stream::Null,
            Stdio::ToStdout => Stream::ToStdout,
            Stdio::Fd(descriptor) => {
                descriptors.push(descriptor);
                Stream::Passed
            }
        });
        let start = Start {
            arguments,
            variables,
            text,
            streams,
            script: self.script,
            deadline_ns: self.deadline.map(monotonic_ns),
            memory,
            observed: self.observed,
            watched,
            cpu_limit_us: self.cpu_limit.map(|limit| u64::try_from(limit.as_micros()).unwrap_or(u64::MAX)),
        };
        Ok((start, descriptors))
    }
}

/// A moment by the kernel's monotonic clock, which every process shares.
fn monotonic_ns(moment: Instant) -> u64 {
    let left = moment.saturating_duration_since(Instant::now());
    let now = now_ns();
    u64::try_from(left.as_nanos()).map_or(u64::MAX, |left| now.saturating_add(left))
}

/// Nanoseconds of the monotonic clock.
pub(crate) fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let part = |part: i64| u64::try_from(part).unwrap_or(0);
    part(now.tv_sec).saturating_mul(1_000_000_000).saturating_add(part(now.tv_nsec))
}

fn sealed(bytes: &[u8]) -> Result<OwnedFd, Errno> {
    use std::io::Write as _;
    let memory = memfd_create(c"start", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    let mut file = std::fs::File::from(memory);
    file.write_all(bytes).map_err(|error| errno_of(&error))?;
    fcntl_add_seals(&file, SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE)?;
    Ok(file.into())
}
