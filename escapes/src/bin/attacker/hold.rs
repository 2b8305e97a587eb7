//! Objects of the host's IPC namespace for a guest to look for: they exist while this process waits.

use std::io::{self, Read as _, Write as _};

use crate::sys::{path, syscall};

pub(crate) fn until_end_of_input(key: &str) -> io::Result<()> {
    let key: i32 = key.parse().map_err(io::Error::other)?;
    let shared = syscall!(libc::SYS_shmget, key, 4096, libc::IPC_CREAT | libc::IPC_EXCL | 0o666)?;
    let held = hold_queue(key);
    let removed = syscall!(libc::SYS_shmctl, shared, libc::IPC_RMID, 0);
    held.and(removed.map(drop))
}

fn hold_queue(key: i32) -> io::Result<()> {
    let name = path(&queue_name(key));
    syscall!(libc::SYS_mq_open, name.as_c_str(), libc::O_CREAT | libc::O_EXCL | libc::O_RDONLY, 0o666, 0)?;
    writeln!(io::stdout(), "held")?;
    let waited = io::stdin().read_to_end(&mut Vec::new());
    let removed = syscall!(libc::SYS_mq_unlink, name.as_c_str());
    waited.and(removed).map(drop)
}

/// Its name as the kernel takes it: the slash is the C library's.
pub(crate) fn queue_name(key: i32) -> String {
    format!("agentvm-escapes-{key}")
}
