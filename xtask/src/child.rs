//! Child processes that can neither hang the gate nor outlive it.
//!
//! Each child leads a process group of its own, and a [`Leash`] kills that group when the child has ended, when its
//! time is over and when xtask itself dies, be it by Ctrl-C or SIGKILL. Output that is read goes through an unnamed
//! file, not a pipe: a descendant that kept the pipe open would keep its reader waiting.

mod leash;
#[cfg(test)]
mod tests;

use std::env;
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{self, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use leash::Leash;

/// How a child ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// By itself, or by a signal that was not ours.
    Exited(ExitStatus),
    /// By us: it still ran after this time.
    Overdue(Duration),
}

impl End {
    pub(crate) fn success(self) -> bool {
        self.code() == Some(0)
    }

    pub(crate) fn code(self) -> Option<i32> {
        match self {
            Self::Exited(status) => status.code(),
            Self::Overdue(_) => None,
        }
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited(status) => status.fmt(f),
            Self::Overdue(limit) => write!(f, "hung, killed after {} s", limit.as_secs_f32()),
        }
    }
}

/// Which of a child's streams are read; the other one stays xtask's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Streams {
    Stdout,
    Both,
}

/// Runs a child without input, its output going where xtask's goes.
pub(crate) fn run(command: &mut Command, limit: Duration) -> Result<End> {
    let mut child = command
        .stdin(Stdio::null())
        .process_group(0)
        .spawn()
        .with_context(|| format!("`{}` did not start", shown(command)))?;
    let leash = Leash::tie(child.id())?;
    let (sender, ended) = mpsc::channel();
    thread::spawn(move || sender.send(child.wait()));
    if let Ok(status) = ended.recv_timeout(limit) {
        Ok(End::Exited(status.context("the child cannot be waited for")?))
    } else {
        drop(leash);
        Ok(End::Overdue(limit))
    }
}

/// Like [`run`], and an error unless the child exits with 0.
pub(crate) fn succeed(command: &mut Command, limit: Duration) -> Result<()> {
    let end = run(command, limit)?;
    ensure!(end.success(), "`{}`: {end}", shown(command));
    Ok(())
}

/// Like [`run`], and gives what the child wrote; what is not UTF-8 is replaced.
pub(crate) fn read(command: &mut Command, streams: Streams, limit: Duration) -> Result<(End, String)> {
    let mut file = unnamed_file().context("no file for a child's output")?;
    command.stdout(file.try_clone()?);
    if streams == Streams::Both {
        command.stderr(file.try_clone()?);
    }
    let end = run(command, limit)?;
    let mut bytes = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut bytes)?;
    Ok((end, String::from_utf8_lossy(&bytes).into_owned()))
}

/// The stdout of a child that exits with 0; anything else is an error.
pub(crate) fn stdout_of(command: &mut Command, limit: Duration) -> Result<String> {
    let (end, text) = read(command, Streams::Stdout, limit)?;
    ensure!(end.success(), "`{}`: {end}\n{text}", shown(command));
    Ok(text)
}

/// The command line, for people: the program without its folder.
fn shown(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or_default();
    let words = std::iter::once(program).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

/// A file that has lost its name already, so nothing has to clean it up. Every write goes to its end: two streams
/// share it, and a child's own child may have opened it anew.
fn unnamed_file() -> io::Result<File> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let path = env::temp_dir().join(format!("agentvm-xtask-{}-{number}", process::id()));
    let file = OpenOptions::new().read(true).append(true).create_new(true).open(&path)?;
    fs::remove_file(&path)?;
    Ok(file)
}
