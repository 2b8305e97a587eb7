//! Namespaces, to be made or entered.

use std::fs::File;
use std::os::fd::AsRawFd as _;

use super::{Attempt, Got, done, tries};
use crate::sys::{exit, syscall};

pub(super) fn all() -> Vec<Attempt> {
    vec![
        tries!("E1 user", SYS_unshare, libc::CLONE_NEWUSER),
        tries!("E2 mnt", SYS_unshare, libc::CLONE_NEWNS),
        tries!("E2 net", SYS_unshare, libc::CLONE_NEWNET),
        tries!("E2 pid", SYS_unshare, libc::CLONE_NEWPID),
        tries!("E2 ipc", SYS_unshare, libc::CLONE_NEWIPC),
        tries!("E2 cgroup", SYS_unshare, libc::CLONE_NEWCGROUP),
        tries!("E2 time", SYS_unshare, 0x80),
        tries!("E2 uts", SYS_unshare, libc::CLONE_NEWUTS),
        tries!("E2 upper", SYS_unshare, i64::from(libc::CLONE_NEWNS) | 1 << 32),
        Attempt::new("E4", || clone(i64::from(libc::CLONE_NEWUSER) | 1 << 32)),
        Attempt::new("E4 mnt", || clone(libc::CLONE_NEWNS.into())),
        Attempt::new("E4 uts", || clone(libc::CLONE_NEWUTS.into())),
        Attempt::new("E5", clone3),
        Attempt::new("E5 thread", || {
            std::thread::Builder::new().spawn(|| ())?.join().map_err(|_| std::io::Error::other("it died"))?;
            Ok(String::new())
        })
        .alone(),
        Attempt::new("E7", || {
            let pidfd = syscall!(libc::SYS_pidfd_open, 1, 0)?;
            done(syscall!(libc::SYS_setns, pidfd, libc::CLONE_NEWNS))
        }),
        Attempt::new("E7 own", || {
            let own = File::open("/proc/self/ns/uts")?;
            done(syscall!(libc::SYS_setns, own.as_raw_fd(), 0))
        }),
    ]
}

fn clone(flags: i64) -> Got {
    match syscall!(libc::SYS_clone, flags | i64::from(libc::SIGCHLD), 0, 0, 0, 0)? {
        0 => exit(0),
        _ => Ok(String::new()),
    }
}

fn clone3() -> Got {
    let arguments = [0u64; 11];
    match syscall!(libc::SYS_clone3, &arguments, 88)? {
        0 => exit(0),
        _ => Ok(String::new()),
    }
}
