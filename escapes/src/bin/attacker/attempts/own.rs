//! What a guest process may make of itself: privileges, limits, its terminal.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd as _;

use super::{Attempt, Got, done, tries};
use crate::sys::{exit, fork, in_child, path, syscall, wait};

const CAP_SYS_ADMIN: u32 = 21;
const CAPABILITY_VERSION: u32 = 0x2008_0522;
/// A program of many desktops whose file has capabilities.
const WITH_CAPABILITIES: &str = "/usr/lib/x86_64-linux-gnu/gstreamer1.0/gstreamer-1.0/gst-ptp-helper";
const TIOCSCTTY: i32 = 0x540e;

pub(super) fn all() -> Vec<Attempt> {
    vec![
        Attempt::new("E34 su", || euid_of("/usr/bin/su")).alone(),
        Attempt::new("E34 passwd", || euid_of("/usr/bin/passwd")).alone(),
        Attempt::new("E34 chfn", || euid_of("/usr/bin/chfn")).alone(),
        Attempt::new("E35", || capabilities_of(WITH_CAPABILITIES)).alone(),
        Attempt::new("E35 mounts", mounts_with_suid).on_host(),
        Attempt::new("E70 nice", || be_nicer(-5)).instead(|| be_nicer(5)),
        Attempt::new("E70 fifo", || scheduler(1, 1)).instead(|| scheduler(3 /* BATCH */, 0)),
        Attempt::new("E70 round robin", || scheduler(2, 1)).instead(|| scheduler(3, 0)),
        Attempt::new("E71", || raise(libc::RLIMIT_NPROC, 1)).instead(|| raise(libc::RLIMIT_NPROC, 0)),
        Attempt::new("E71 files", || raise(libc::RLIMIT_NOFILE, 1)).instead(|| raise(libc::RLIMIT_NOFILE, 0)),
        Attempt::new("E71 core", || raise(libc::RLIMIT_CORE, 1)).instead(|| raise(libc::RLIMIT_NOFILE, 0)),
        Attempt::new("E91", || done(syscall!(libc::SYS_prctl, libc::PR_SET_NO_NEW_PRIVS, 0, 0, 0, 0)))
            .instead(|| done(syscall!(libc::SYS_prctl, libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))),
        Attempt::new("E92 capset", || take(1 << CAP_SYS_ADMIN)),
        Attempt::new("E92 ambient", ambient).instead(|| {
            take(1 << CAP_SYS_ADMIN)?;
            ambient()
        }),
        tries!("E92 securebits", SYS_prctl, libc::PR_SET_SECUREBITS, 0, 0, 0, 0),
        tries!("E92 keepcaps", SYS_prctl, libc::PR_SET_KEEPCAPS, 1, 0, 0, 0),
        Attempt::new("E94 uid_map", || map("uid_map")).instead(|| mapped("uid_map")),
        Attempt::new("E94 gid_map", || map("gid_map")).instead(|| {
            in_child(|| {
                syscall!(libc::SYS_unshare, libc::CLONE_NEWUSER)?;
                fs::write("/proc/self/setgroups", "deny")?;
                fs::write("/proc/self/gid_map", "0 0 1")
            })
            .map(|()| String::new())
        }),
        Attempt::new("E94 setgroups", || done(fs::write("/proc/self/setgroups", "allow")))
            .instead(|| mapped("uid_map")),
        Attempt::new("E95 TIOCSTI", || on_own_terminal(0x5412)),
        Attempt::new("E95 upper", || on_own_terminal(0x5412 | 1 << 32)),
        Attempt::new("E95 TIOCLINUX", || on_own_terminal(0x541c)),
        Attempt::new("E95 TIOCSETD", || on_own_terminal(0x5423)),
        Attempt::new("E103", || {
            let terminals: io::Result<Vec<_>> = (0..100).map(|_| new_terminal()).collect();
            done(terminals)
        }),
        Attempt::new("E118", || {
            done((0..65).try_for_each(|_| syscall!(libc::SYS_inotify_init1, 0).map(drop)))
        })
        .alone(),
        Attempt::new("E122", || {
            let mut limit = [0u64; 2];
            syscall!(libc::SYS_prlimit64, 0, libc::RLIMIT_CORE, 0, &mut limit)?;
            Ok(format!("{} {}", limit[0], limit[1]))
        })
        .alone(),
        Attempt::new("E128", || {
            syscall!(libc::SYS_fcntl, 1, libc::F_SETPIPE_SZ, 4096)?;
            syscall!(libc::SYS_fcntl, 1, libc::F_SETFL, libc::O_NONBLOCK | libc::O_APPEND)?;
            done(syscall!(libc::SYS_fcntl, 1, libc::F_SETFL, 0))
        })
        .alone(),
    ]
}

/// Whether a set-uid program has another effective uid than ours once it runs.
fn euid_of(program: &str) -> Got {
    let Some(status) = status_of(program)? else { return Ok("absent".to_owned()) };
    let mut uids: Vec<_> = field(&status, "Uid:").split_whitespace().collect();
    uids.dedup();
    // SAFETY: it has no precondition.
    let own = unsafe { libc::geteuid() }.to_string();
    Ok(if uids == [own.as_str()] { "unchanged".to_owned() } else { uids.join(" ") })
}

/// Whether a program whose file has capabilities has others than ours once it runs.
fn capabilities_of(program: &str) -> Got {
    let name = path("security.capability");
    if syscall!(libc::SYS_getxattr, path(program).as_c_str(), name.as_c_str(), 0, 0).is_err() {
        return Ok("absent".to_owned());
    }
    let Some(status) = status_of(program)? else { return Ok("absent".to_owned()) };
    let (own, its) = (fs::read_to_string("/proc/self/status")?, field(&status, "CapEff:"));
    Ok(if its == field(&own, "CapEff:") { "unchanged".to_owned() } else { its.to_owned() })
}

/// How many mounts honour what files say about privileges.
fn mounts_with_suid() -> Got {
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    let honours = |line: &&str| !line.split(' ').nth(5).is_some_and(|flags| flags.contains("nosuid"));
    Ok(format!("{} mounts", mounts.lines().filter(honours).count()))
}

/// `/proc/PID/status` of a program that has run; `None` if it did not.
fn status_of(program: &str) -> io::Result<Option<String>> {
    let program = path(program);
    let null = File::open("/dev/null")?;
    let Some(pid) = fork()? else {
        let arguments = [program.as_ptr(), std::ptr::null()];
        let _ = syscall!(libc::SYS_dup3, null.as_raw_fd(), 0, 0);
        let _ = syscall!(libc::SYS_execve, program.as_c_str(), &arguments, &arguments[1..]);
        exit(1);
    };
    // A zombie still shows what it was.
    let mut information = [0i32; 32];
    let how = libc::WEXITED | libc::WNOWAIT;
    syscall!(libc::SYS_waitid, libc::P_PID, pid, &mut information, how, 0)?;
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    wait(pid)?;
    Ok((field(&status, "Name:") != "attacker").then_some(status))
}

fn field<'a>(status: &'a str, name: &str) -> &'a str {
    status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().trim()
}

/// Changes the nice value it was started with; the bare call gives 20 minus that.
fn be_nicer(by: i64) -> Got {
    let nice = 20 - syscall!(libc::SYS_getpriority, libc::PRIO_PROCESS, 0)?;
    done(syscall!(libc::SYS_setpriority, libc::PRIO_PROCESS, 0, nice + by))
}

fn scheduler(policy: i32, priority: u32) -> Got {
    done(syscall!(libc::SYS_sched_setscheduler, 0, policy, &[priority]))
}

/// Raises both limits of a resource.
fn raise(resource: u32, by: u64) -> Got {
    let mut limit = [0u64; 2];
    syscall!(libc::SYS_prlimit64, 0, resource, 0, &mut limit)?;
    let more = [limit[1] + by; 2];
    done(syscall!(libc::SYS_prlimit64, 0, resource, &more, 0))
}

/// Makes a set its effective, permitted and inheritable one.
fn take(set: u32) -> Got {
    let header = [CAPABILITY_VERSION, 0];
    let sets = [set, set, set, 0, 0, 0];
    done(syscall!(libc::SYS_capset, &header, &sets))
}

fn ambient() -> Got {
    done(syscall!(libc::SYS_prctl, libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_RAISE, CAP_SYS_ADMIN, 0, 0))
}

fn map(which: &str) -> Got {
    done(fs::write(format!("/proc/self/{which}"), "0 0 1"))
}

/// The same in a new user namespace, where it is allowed.
fn mapped(which: &str) -> Got {
    in_child(|| {
        syscall!(libc::SYS_unshare, libc::CLONE_NEWUSER)?;
        map(which).map(drop)
    })
    .map(|()| String::new())
}

/// A new pseudo-terminal, as its master.
fn new_terminal() -> io::Result<i64> {
    syscall!(libc::SYS_openat, libc::AT_FDCWD, path("/dev/ptmx").as_c_str(), libc::O_RDWR | libc::O_NOCTTY)
}

/// A request to the terminal that controls this process: only there is it a question of the request.
fn on_own_terminal(request: i64) -> Got {
    syscall!(libc::SYS_setsid)?;
    let master = new_terminal()?;
    syscall!(libc::SYS_ioctl, master, 0x4004_5431 /* TIOCSPTLCK */, &[0i32])?;
    let terminal = syscall!(libc::SYS_ioctl, master, 0x5441 /* TIOCGPTPEER */, libc::O_RDWR)?;
    syscall!(libc::SYS_ioctl, terminal, TIOCSCTTY, 0)?;
    done(syscall!(libc::SYS_ioctl, terminal, request, &[0u32, 0]))
}
