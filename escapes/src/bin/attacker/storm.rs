//! Storms: what a guest does to take all there is of something, or to confuse who watches it, until it is killed.
//!
//! Each says `raging` once it has what it wants, and goes on.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::FileExt as _;
use std::thread;

use crate::sys::{exit, fork, memory_file, path, syscall, wait};

/// How many processes with long arguments.
const TALKERS: usize = 200;
/// Nearly the longest argument there is, and as many of them as make 6 MiB less what else the kernel wants of that.
const ARGUMENT_BYTES: usize = 127 << 10;
const ARGUMENTS: usize = 47;
/// Processes that compute.
const SPINNERS: usize = 16;
/// The largest pipe an ordinary user may make.
const PIPE_BYTES: i32 = 1 << 20;
/// Descriptors in one message, and messages tried on a socket.
const PASSED: usize = 250;
const MESSAGES: usize = 64;

type Storm = fn() -> io::Result<()>;

/// Name and what it does.
const ALL: [(&str, Storm); 12] = [
    ("argv", long_arguments),
    ("cpu", spin),
    ("descriptors", open_everything),
    ("disguise", disguise),
    ("disk", fill_the_disk),
    ("fork", fork_without_end),
    ("inflight", pass_descriptors),
    ("memfd", take_memory_unseen),
    ("memory", take_memory),
    ("output", write_without_end),
    ("stop", stop_everybody),
    ("threads", start_threads_without_end),
];

pub(crate) fn rage(name: &str) -> io::Result<()> {
    let found = ALL.iter().find(|(known, _)| *known == name);
    let (_, storm) = found.ok_or_else(|| io::Error::other("no such storm"))?;
    storm()?;
    wait_to_be_killed()
}

fn raging() -> io::Result<()> {
    writeln!(io::stdout(), "raging")
}

pub(crate) fn wait_to_be_killed() -> ! {
    loop {
        thread::park();
    }
}

/// Every process makes others, and no refusal ends one. The first process tells of its first.
fn fork_without_end() -> io::Result<()> {
    let first = std::process::id();
    let mut told = false;
    loop {
        if fork().is_err() && !told && std::process::id() == first {
            raging()?;
            told = true;
        }
    }
}

/// Threads that end at once make room for the next; those that were there when it was full stay.
fn start_threads_without_end() -> io::Result<()> {
    let start = |work: fn()| thread::Builder::new().stack_size(64 << 10).spawn(work);
    while start(|| wait_to_be_killed()).is_ok() {}
    raging()?;
    loop {
        let _ = start(|| ());
    }
}

/// Stops every process that it sees or expects: pids are given out in order.
fn stop_everybody() -> io::Result<()> {
    raging()?;
    let own = i32::try_from(std::process::id()).map_err(io::Error::other)?;
    let mut last = own;
    loop {
        let names = fs::read_dir("/proc")?.flatten().map(|entry| entry.file_name());
        let seen = names.filter_map(|name| name.to_str()?.parse().ok());
        for pid in (last + 1..last + 64).chain(seen) {
            if pid != own && syscall!(libc::SYS_kill, pid, libc::SIGSTOP).is_ok() {
                last = last.max(pid);
            }
        }
    }
}

fn spin() -> io::Result<()> {
    for _ in 0..SPINNERS {
        if fork()?.is_none() {
            loop {
                std::hint::spin_loop();
            }
        }
    }
    raging()
}

/// Processes with as long an argument list as the kernel takes.
fn long_arguments() -> io::Result<()> {
    // The kernel takes a quarter of the stack's limit, and no more than 6 MiB.
    syscall!(libc::SYS_prlimit64, 0, libc::RLIMIT_STACK, &[64u64 << 20; 2], 0)?;
    let (program, idle, long) = (path("/proc/self/exe"), path("idle"), path(&"x".repeat(ARGUMENT_BYTES)));
    let mut arguments = vec![program.as_ptr(), idle.as_ptr()];
    arguments.extend([long.as_ptr(); ARGUMENTS]);
    arguments.push(std::ptr::null());
    let nothing = &arguments[arguments.len() - 1..];
    for _ in 0..TALKERS {
        // Told only once all are what they shall be.
        let mut ends = [0i32; 2];
        syscall!(libc::SYS_pipe2, &mut ends, libc::O_CLOEXEC)?;
        if fork()?.is_none() {
            let _ = syscall!(libc::SYS_execve, program.as_c_str(), arguments.as_slice(), nothing);
            exit(1);
        }
        syscall!(libc::SYS_close, ends[1])?;
        syscall!(libc::SYS_read, ends[0], &mut [0u8; 1], 1)?;
        syscall!(libc::SYS_close, ends[0])?;
    }
    raging()
}

/// Makes its name and its arguments look like others'.
fn disguise() -> io::Result<()> {
    syscall!(libc::SYS_prctl, libc::PR_SET_NAME, c"init\n1) R 0", 0, 0, 0)?;
    let line = fs::read_to_string("/proc/self/stat")?;
    let after_name = line.rsplit_once(')').map_or("", |(_, rest)| rest);
    // Fields 48 and 49 of proc_pid_stat(5); the third is the first behind the name.
    let field = |number: usize| {
        after_name.split_whitespace().nth(number - 3).and_then(|text| text.parse::<u64>().ok())
    };
    let (Some(start), Some(end)) = (field(48), field(49)) else {
        return Err(io::Error::other("no arguments"));
    };
    let length = usize::try_from(end - start).map_err(io::Error::other)?;
    // Without a NUL at their end the kernel takes them for one string that goes on behind them.
    let mut arguments = b"agentvm-init\n2 (init) R 1 ".to_vec();
    arguments.resize(length, b'!');
    OpenOptions::new().write(true).open("/proc/self/mem")?.write_all_at(&arguments, start)?;
    raging()
}

/// As many descriptors as there may be, each a pipe as large as there may be, full.
fn open_everything() -> io::Result<()> {
    let full = vec![1u8; 1 << 20];
    loop {
        let mut ends = [0i32; 2];
        if syscall!(libc::SYS_pipe2, &mut ends, libc::O_NONBLOCK).is_err() {
            return raging();
        }
        // Neither has to work.
        let _ = syscall!(libc::SYS_fcntl, ends[1], libc::F_SETPIPE_SZ, PIPE_BYTES);
        let _ = syscall!(libc::SYS_write, ends[1], full.as_slice(), PIPE_BYTES);
    }
}

/// Descriptors on their way through sockets that nobody reads.
fn pass_descriptors() -> io::Result<()> {
    let null = File::open("/dev/null")?;
    let mut refused = 0;
    while refused < 3 {
        let mut ends = [0i32; 2];
        if syscall!(libc::SYS_socketpair, libc::AF_UNIX, libc::SOCK_DGRAM | libc::SOCK_NONBLOCK, 0, &mut ends)
            .is_err()
        {
            break;
        }
        for _ in 0..MESSAGES {
            if let Err(error) = pass(ends[0], null.as_raw_fd()) {
                refused += usize::from(error.raw_os_error() == Some(libc::ETOOMANYREFS));
                break;
            }
        }
    }
    raging()
}

/// `sendmsg(2)` of one byte and many descriptors.
fn pass(socket: i32, descriptor: i32) -> io::Result<()> {
    let byte = [0u8];
    let part = [byte.as_ptr() as u64, 1];
    // `struct cmsghdr`: length, then SOL_SOCKET and SCM_RIGHTS.
    let mut control = vec![16 + 4 * PASSED as u64, 1 | 1 << 32];
    control.extend(std::iter::repeat_n(u64::from(descriptor.unsigned_abs()) * (1 | 1 << 32), PASSED / 2));
    // `struct msghdr`: no name, the part, the control data, no flags.
    let message = [0, 0, part.as_ptr() as u64, 1, control.as_ptr() as u64, control[0], 0];
    syscall!(libc::SYS_sendmsg, socket, &message, 0).map(drop)
}

/// Takes memory until the kernel ends what takes it, again and again.
fn take_memory() -> io::Result<()> {
    let mut told = false;
    loop {
        let Some(hog) = fork()? else {
            let mut all = Vec::new();
            loop {
                all.push(std::hint::black_box(vec![1u8; 1 << 20]));
            }
        };
        wait(hog)?;
        if !told {
            raging()?;
            told = true;
        }
    }
}

/// Takes memory that is not counted as any process's own.
fn take_memory_unseen() -> io::Result<()> {
    raging()?;
    let mut file = memory_file()?;
    let chunk = vec![1u8; 1 << 20];
    loop {
        file.write_all(&chunk)?;
    }
}

/// Fills what there is to fill, and keeps it full.
fn fill_the_disk() -> io::Result<()> {
    let chunk = vec![1u8; 1 << 20];
    let mut told = false;
    for number in 0.. {
        let file = File::create(format!("/tmp/filler-{number}"));
        let filled = file.and_then(|mut file| (0..).try_for_each(|_| file.write_all(&chunk)));
        if filled.is_err_and(|error| error.raw_os_error() == Some(libc::ENOSPC)) && !told {
            raging()?;
            told = true;
        }
    }
    Ok(())
}

/// Writes to both outputs.
fn write_without_end() -> io::Result<()> {
    raging()?;
    let chunk = vec![b'x'; 64 << 10];
    let errors = chunk.clone();
    thread::spawn(move || while io::stderr().write_all(&errors).is_ok() {});
    while io::stdout().write_all(&chunk).is_ok() {}
    Ok(())
}
