//! Tries attempts, each in a process of its own: whatever it does to itself ends with it.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::FromRawFd as _;

use crate::attempts::{self, Attempt, Got};
use crate::errno;
use crate::sys::{exit, fork, syscall, wait};

/// Nothing here takes long; what does has got stuck. Seconds.
const LIMIT: u32 = 60;

/// Tries everything and prints what came of it.
pub(crate) fn all(try_one: fn(&Attempt) -> String) -> io::Result<()> {
    for attempt in attempts::all() {
        let line = serde_json::json!({ "id": attempt.id, "outcome": try_one(&attempt) });
        writeln!(io::stdout(), "{line}")?;
    }
    Ok(())
}

/// What came of one: `ok`, `ok: what it got`, the name of an error or of the signal that ended it.
pub(crate) fn outcome(run: impl FnOnce() -> Got) -> String {
    in_child(|| match run() {
        Ok(got) if got.is_empty() => "ok".to_owned(),
        Ok(got) => format!("ok: {got}"),
        Err(error) => errno::of(&error),
    })
}

/// What something says, run in a child; the name of the signal if one ends it.
pub(crate) fn in_child(run: impl FnOnce() -> String) -> String {
    try_in_child(run).unwrap_or_else(|error| format!("attacker: {error}"))
}

fn try_in_child(run: impl FnOnce() -> String) -> io::Result<String> {
    let mut ends = [0i32; 2];
    syscall!(libc::SYS_pipe2, &mut ends, libc::O_CLOEXEC)?;
    // SAFETY: the kernel has just made them, for us.
    let [mut read, mut write] = ends.map(|end| unsafe { File::from_raw_fd(end) });
    let Some(pid) = fork()? else {
        // SAFETY: it has no precondition.
        unsafe { libc::alarm(LIMIT) };
        exit(i32::from(write.write_all(run().as_bytes()).is_err()))
    };
    drop(write);
    let mut said = String::new();
    read.read_to_string(&mut said)?;
    let status = wait(pid)?;
    Ok(if libc::WIFSIGNALED(status) { errno::signal(libc::WTERMSIG(status)) } else { said })
}
