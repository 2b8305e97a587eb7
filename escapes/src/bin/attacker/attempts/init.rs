//! PID 1, which holds the VM together, and processes outside.

use std::fs::{self, File, OpenOptions};
use std::io::Read as _;

use super::{Attempt, Got, done, tries};
use crate::facts::facts;
use crate::sys::{idle_child, syscall};

const PTRACE_ATTACH: i32 = 16;
const PTRACE_SEIZE: i32 = 0x4206;

pub(super) fn all() -> Vec<Attempt> {
    let mut all = vec![
        Attempt::new("E20", || done(File::open("/proc/1/root/etc/shadow"))),
        Attempt::new("E20 cwd", || done(File::open("/proc/1/cwd/etc/shadow"))),
        Attempt::new("E22", || done(fs::read_dir("/proc/1/fd"))),
        Attempt::new("E22 fdinfo", || done(fs::read_dir("/proc/1/fdinfo"))),
        Attempt::new("E22 map_files", || done(fs::read_dir("/proc/1/map_files"))),
        Attempt::new("E23 environ", || read("/proc/1/environ")),
        Attempt::new("E23 maps", || read("/proc/1/maps")),
        Attempt::new("E23 mem", || done(File::open("/proc/1/mem"))),
        Attempt::new("E23 auxv", || read("/proc/1/auxv")),
        Attempt::new("E23 io", || read("/proc/1/io")),
        Attempt::new("E23 smaps", || read("/proc/1/smaps")),
        Attempt::new("E23 syscall", || read("/proc/1/syscall")),
        Attempt::new("E23 stack", || read("/proc/1/stack")).alone(),
        Attempt::new("E25", || Ok(fs::read_to_string("/proc/1/cmdline")?.replace('\0', "|"))).alone(),
        Attempt::new("E25 comm", || Ok(fs::read_to_string("/proc/1/comm")?.trim().to_owned())).alone(),
        Attempt::new("E26 oom_score_adj", || write("/proc/1/oom_score_adj")),
        Attempt::new("E26 coredump_filter", || write("/proc/1/coredump_filter")),
        Attempt::new("E26 comm", || write("/proc/1/comm")),
        Attempt::new("E26 clear_refs", || write("/proc/1/clear_refs")),
        Attempt::new("E26 autogroup", || write("/proc/1/autogroup")),
        Attempt::new("E26 mem", || write("/proc/1/mem")),
    ];
    all.extend(by_call());
    all
}

fn by_call() -> Vec<Attempt> {
    vec![
        Attempt::new("E43", || done(syscall!(libc::SYS_pidfd_open, facts().host_pid, 0))).on_host(),
        Attempt::new("E43 kill", || done(syscall!(libc::SYS_kill, facts().host_pid, 0)))
            .instead(|| done(syscall!(libc::SYS_kill, idle_child()?, libc::SIGKILL))),
        Attempt::new("E44", || {
            let pidfd = pidfd_of_init()?;
            done(syscall!(libc::SYS_pidfd_send_signal, pidfd, libc::SIGKILL, 0, 0))
        })
        .alone(),
        Attempt::new("E44 kill", || done(syscall!(libc::SYS_kill, 1, libc::SIGKILL))).alone(),
        Attempt::new("E44 stop", || done(syscall!(libc::SYS_kill, 1, libc::SIGSTOP))).alone(),
        tries!("E47 seize", SYS_ptrace, PTRACE_SEIZE, 1, 0, 0),
        // Its control would stop the process that the attacker waits for.
        tries!("E47 attach", SYS_ptrace, PTRACE_ATTACH, 1, 0, 0).alone(),
        Attempt::new("E49", || done(syscall!(libc::SYS_pidfd_getfd, pidfd_of_init()?, 0, 0))),
        Attempt::new("E50", || {
            done(syscall!(libc::SYS_kcmp, 1, std::process::id(), 1 /* KCMP_VM */, 0, 0))
        }),
        Attempt::new("E52 madvise", || {
            let part = [0x1000u64, 0x1000];
            done(syscall!(libc::SYS_process_madvise, pidfd_of_init()?, &part, 1, 4 /* DONTNEED */, 0))
        }),
        Attempt::new("E52 mrelease", || done(syscall!(libc::SYS_process_mrelease, pidfd_of_init()?, 0)))
            .alone(),
        Attempt::new("E52 readv", || transfer(libc::SYS_process_vm_readv)),
        Attempt::new("E52 writev", || transfer(libc::SYS_process_vm_writev)),
        Attempt::new("E53 NOFILE", || limit(libc::RLIMIT_NOFILE)),
        Attempt::new("E53 NPROC", || limit(libc::RLIMIT_NPROC)),
        Attempt::new("E53 CPU", || limit(libc::RLIMIT_CPU)),
        Attempt::new("E53 FSIZE", || limit(libc::RLIMIT_FSIZE)),
        Attempt::new("E53 AS", || limit(libc::RLIMIT_AS)),
        Attempt::new("E53 upper", || limit_of(1 | 1 << 32, libc::RLIMIT_NPROC)),
        // What runs afterwards shows that init can still start it.
        tries!("E59", SYS_prlimit64, 1, libc::RLIMIT_NPROC, &[0u64; 2], 0),
        Attempt::new("E55 affinity", || done(syscall!(libc::SYS_sched_setaffinity, 1, 8, &[1u64]))),
        Attempt::new("E55 scheduler", || done(syscall!(libc::SYS_sched_setscheduler, 1, 3, &[0u32]))),
        Attempt::new("E55 param", || done(syscall!(libc::SYS_sched_setparam, 1, &[0u32]))),
        // `struct sched_attr` of SCHED_BATCH.
        Attempt::new("E55 attr", || {
            let attributes = [48u32, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
            done(syscall!(libc::SYS_sched_setattr, 1, &attributes, 0))
        }),
        tries!("E56 process", SYS_setpriority, libc::PRIO_PROCESS, 1, 5),
        tries!("E56 group", SYS_setpriority, libc::PRIO_PGRP, 1, 5),
        tries!("E56 user", SYS_setpriority, libc::PRIO_USER, 0, 5).alone(),
        tries!("E56 ioprio", SYS_ioprio_set, 1, 1, 3 << 13),
    ]
}

fn read(file: &str) -> Got {
    done(File::open(file)?.read(&mut [0; 64]))
}

fn write(file: &str) -> Got {
    done(OpenOptions::new().write(true).open(file))
}

fn pidfd_of_init() -> std::io::Result<i64> {
    syscall!(libc::SYS_pidfd_open, 1, 0)
}

/// Its memory, read or written. The address is one of ours: init's is not to be known.
fn transfer(call: libc::c_long) -> Got {
    let local = [0u64; 1];
    let part = [local.as_ptr() as u64, 8];
    done(syscall!(call, 1, &part, 1, &part, 1, 0))
}

fn limit(resource: u32) -> Got {
    limit_of(1, resource)
}

/// Gives init our own limit, which is no higher than its own, so that no privilege is missing.
fn limit_of(pid: i64, resource: u32) -> Got {
    let mut own = [0u64; 2];
    syscall!(libc::SYS_prlimit64, 0, resource, 0, &mut own)?;
    done(syscall!(libc::SYS_prlimit64, pid, resource, &own, 0))
}
