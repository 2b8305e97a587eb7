//! The leash on a process group: a shell that kills the group at the end of a pipe whose other end xtask holds.

use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};

/// Kills the group when dropped. The kernel closes the pipe when xtask dies, however it dies, so the group never
/// outlives it; the shell has a group of its own, since Ctrl-C would end it first.
pub(super) struct Leash(Child);

impl Leash {
    pub(super) fn tie(group: u32) -> Result<Self> {
        Command::new("/bin/sh")
            .args(["-c", "read -r _; kill -s KILL -- \"-$0\" 2>/dev/null", &group.to_string()])
            .stdin(Stdio::piped())
            .process_group(0)
            .spawn()
            .map(Self)
            .context("the shell that guards a child did not start")
    }
}

impl Drop for Leash {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        // Its exit code only says whether the group was gone already.
        let _ = self.0.wait();
    }
}
