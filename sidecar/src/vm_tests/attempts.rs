//! What a guest tries and what it must get; `E` numbers are those of the project's list of escape attempts. Each is
//! tried as `agentos` and as root of the VM. Positive controls belong to the attacker program that runs the whole list.

use agentvm_wire::process::SignalTarget;
use agentvm_wire::vm::VmConfig;

use super::harness::{Vm, root};
use crate::init::Event;

/// Runs Python expressions in the VM and asserts what each gives: `ok` or the name of an errno.
fn attempt(vm: &mut Vm, attempts: &[(&str, String, &str)]) {
    let mut program = String::from(
        "
import ctypes, errno, os, socket, struct, fcntl
libc = ctypes.CDLL(None, use_errno=True)
def call(*args):
    ctypes.set_errno(0)
    result = libc.syscall(*[ctypes.c_long(a) if isinstance(a, int) else a for a in args])
    if result < 0: raise OSError(ctypes.get_errno(), '')
    return result
def attempt(name, f):
    try: f(); print(name, 'ok')
    except OSError as e: print(name, errno.errorcode.get(e.errno, e.errno))
buffer = ctypes.create_string_buffer(256)
",
    );
    for (name, expression, _) in attempts {
        program.extend(["attempt('", name, "', lambda: ", expression, ")\n"]);
    }
    let Some(done) = vm.python(&program) else { return };
    let seen: Vec<_> = done.output.lines().map(str::to_owned).collect();
    let expected: Vec<_> = attempts.iter().map(|(name, _, errno)| format!("{name} {errno}")).collect();
    assert_eq!(seen, expected);
}

fn call(number: libc::c_long, arguments: &str) -> String {
    format!("call({number}, {arguments})")
}

fn each_user(attempts: &[(&str, String, &str)]) {
    for config in [VmConfig::default(), root()] {
        attempt(&mut Vm::with(&config), attempts);
    }
}

#[test]
fn namespaces_cannot_be_made_or_entered() {
    each_user(&[
        ("E1 user", call(libc::SYS_unshare, "0x10000000"), "EPERM"),
        ("E2 mnt", call(libc::SYS_unshare, "0x20000"), "EPERM"),
        ("E2 net", call(libc::SYS_unshare, "0x40000000"), "EPERM"),
        ("E2 pid", call(libc::SYS_unshare, "0x20000000"), "EPERM"),
        ("E2 ipc", call(libc::SYS_unshare, "0x8000000"), "EPERM"),
        ("E2 cgroup", call(libc::SYS_unshare, "0x2000000"), "EPERM"),
        ("E2 time", call(libc::SYS_unshare, "0x80"), "EPERM"),
        ("uts", call(libc::SYS_unshare, "0x4000000"), "EPERM"),
        ("clone uts", call(libc::SYS_clone, "0x4000000 | 17, 0, 0, 0, 0"), "EPERM"),
        ("E4", call(libc::SYS_clone, "0x10000000 | 1 << 32 | 17, 0, 0, 0, 0"), "EPERM"),
        ("E5", call(libc::SYS_clone3, "buffer, 88"), "ENOSYS"),
        (
            "E5 thread",
            "__import__('threading').Thread(target=print, args=('',), kwargs={'end': ''}).start()".into(),
            "ok",
        ),
        ("E7", call(libc::SYS_setns, "os.pidfd_open(1), 0x20000"), "EPERM"),
    ]);
}

#[test]
fn the_mount_tree_cannot_be_changed() {
    each_user(&[
        ("E8", call(libc::SYS_mount, "b'tmpfs', b'/tmp', b'tmpfs', 0, 0"), "EPERM"),
        ("E8 remount", call(libc::SYS_mount, "b'', b'/usr', b'', 0x1020, 0"), "EPERM"),
        ("E10 proc", call(libc::SYS_umount2, "b'/proc', 2"), "EPERM"),
        ("E10 mask", call(libc::SYS_umount2, "b'/proc/keys', 2"), "EPERM"),
        ("E10 root", call(libc::SYS_umount2, "b'/', 2"), "EPERM"),
        ("E11 fsopen", call(libc::SYS_fsopen, "b'tmpfs', 0"), "EPERM"),
        ("E11 fsmount", call(libc::SYS_fsmount, "0, 0, 0"), "EPERM"),
        ("E11 fspick", call(libc::SYS_fspick, "-100, b'/', 0"), "EPERM"),
        ("E11 fsconfig", call(libc::SYS_fsconfig, "0, 0, 0, 0, 0"), "EPERM"),
        ("open_tree", call(libc::SYS_open_tree, "-100, b'/', 1"), "EPERM"),
        ("move_mount", call(libc::SYS_move_mount, "-100, b'/tmp', -100, b'/var', 0"), "EPERM"),
        ("E13", call(libc::SYS_mount_setattr, "-100, b'/usr', 0, buffer, 32"), "EPERM"),
        ("E14", call(libc::SYS_pivot_root, "b'/tmp', b'/tmp'"), "EPERM"),
        ("chroot", call(libc::SYS_chroot, "b'/tmp'"), "EPERM"),
        ("E16", call(libc::SYS_open_by_handle_at, "0, buffer, 0"), "EPERM"),
        ("E17 mem", "os.mknod('/tmp/mem', 0o20666, os.makedev(1, 1))".into(), "EPERM"),
        ("E17 disk", "os.mknod('/tmp/disk', 0o60666, os.makedev(254, 0))".into(), "EPERM"),
        ("E28", "open('/usr/x', 'w')".into(), "EROFS"),
        ("E28 dev", "open('/dev/x', 'w')".into(), "EROFS"),
        ("E28 etc", "open('/etc/static/x', 'w')".into(), "EROFS"),
        ("E32", "os.link('/usr/bin/env', '/workspace/env')".into(), "EXDEV"),
        ("E37", "os.setxattr(os.open('/workspace/f', 65), 'security.capability', struct.pack('<5I', 0x2000001, 1 << 21, 0, 0, 0))".into(), "EPERM"),
    ]);
}

#[test]
fn the_host_is_not_to_be_seen() {
    each_user(&[
        ("E19 shadow", "open('/etc/shadow')".into(), "ENOENT"),
        ("E19 var", "os.listdir('/var/log')".into(), "ENOENT"),
        ("E19 boot", "os.listdir('/boot')".into(), "ENOENT"),
        ("E101", "os.listdir('/sys')".into(), "ENOENT"),
        (
            "E100 kcore",
            "open('/proc/kcore')".into(),
            if std::path::Path::new("/proc/kcore").exists() { "ok" } else { "ENOENT" },
        ),
        ("E97", "open('/proc/sys/kernel/core_pattern', 'w')".into(), "EROFS"),
        ("E98 user", "open('/proc/sys/user/max_user_namespaces', 'w')".into(), "EROFS"),
        ("E98 pid", "open('/proc/sys/kernel/pid_max', 'w')".into(), "EROFS"),
        ("E43", format!("os.pidfd_open({})", std::process::id()), "ESRCH"),
        ("E110", "socket.create_connection(('169.254.169.254', 80), 1)".into(), "ENETUNREACH"),
        ("E109", "socket.create_connection(('127.0.0.1', 22), 1)".into(), "ECONNREFUSED"),
    ]);
    let mut vm = Vm::new();
    assert_eq!(
        vm.sh("ls /root /home 2>&1")
            .output
            .lines()
            .filter(|line| !line.contains("ermission"))
            .collect::<Vec<_>>()
            .join(" ")
            .trim(),
        expected_homes()
    );
    let masked = "cd /proc; for f in keys key-users kallsyms cmdline config.gz kmsg iomem timer_list interrupts; do \
                  [ ! -e $f ] || wc -c < $f; done; for d in irq fs acpi scsi bus; do [ ! -e $d ] || ls $d; done";
    assert!(vm.sh(masked).output.lines().all(|line| line == "0"), "E100");
}

#[test]
fn the_hosts_cgroups_are_not_to_be_seen() {
    let of_host = std::fs::read_to_string("/proc/self/cgroup").unwrap();
    let inside = Vm::new().sh("cat /proc/self/cgroup").output;
    for path in of_host.lines().filter_map(|line| line.split(':').nth(2)).filter(|path| *path != "/") {
        assert!(!inside.contains(path), "{path} in {inside}");
    }
}

/// The guest may look into its own `/root` only where it is the one user there is.
fn expected_homes() -> &'static str {
    if rustix::process::geteuid().is_root() { "/home: agentos" } else { "/home: agentos  /root:" }
}

#[test]
fn init_cannot_be_touched() {
    each_user(&[
        ("E20", "open('/proc/1/root/etc/passwd')".into(), "EACCES"),
        ("E22", "os.listdir('/proc/1/fd')".into(), "EACCES"),
        ("E23 environ", "open('/proc/1/environ').read()".into(), "EACCES"),
        ("E23 maps", "open('/proc/1/maps').read()".into(), "EACCES"),
        ("E23 mem", "open('/proc/1/mem').read()".into(), "EACCES"),
        ("E23 auxv", "open('/proc/1/auxv').read()".into(), "EACCES"),
        ("E23 io", "open('/proc/1/io').read()".into(), "EACCES"),
        ("E26 oom", "open('/proc/1/oom_score_adj', 'w')".into(), "EACCES"),
        ("E26 comm", "open('/proc/1/comm', 'w')".into(), "EACCES"),
        ("E26 clear", "open('/proc/1/clear_refs', 'w')".into(), "EACCES"),
        ("E47", call(libc::SYS_ptrace, "0x4206, 1, 0, 0"), "EPERM"),
        ("E49", call(libc::SYS_pidfd_getfd, "os.pidfd_open(1), 3, 0"), "EPERM"),
        ("E50", call(libc::SYS_kcmp, "1, os.getpid(), 0, 0, 0"), "EPERM"),
        ("E52", call(libc::SYS_process_madvise, "os.pidfd_open(1), buffer, 1, 4, 0"), "EPERM"),
        ("E53", call(libc::SYS_prlimit64, "1, 7, b'\\0' * 16, 0"), "EPERM"),
        ("E55", call(libc::SYS_sched_setaffinity, "1, 8, b'\\1' + b'\\0' * 7"), "EPERM"),
        ("E55 other", call(libc::SYS_sched_setscheduler, "1, 0, b'\\0' * 4"), "EPERM"),
        ("E56", call(libc::SYS_setpriority, "0, 1, 5"), "EPERM"),
    ]);
    let mut vm = Vm::new();
    assert_eq!(
        vm.sh("tr '\\0' '|' < /proc/1/cmdline; cat /proc/1/comm").output,
        "agentvm-init|agentvm-init\n",
        "E25"
    );
}

#[test]
fn the_kernel_beside_namespaces_is_out_of_reach() {
    each_user(&[
        ("E70 nice", call(libc::SYS_setpriority, "0, 0, -5"), "EACCES"),
        ("E70 fifo", call(libc::SYS_sched_setscheduler, "0, 1, b'\\1\\0\\0\\0'"), "EPERM"),
        ("E71", call(libc::SYS_prlimit64, "0, 6, struct.pack('QQ', 9999, 9999), 0"), "EPERM"),
        ("E73", call(libc::SYS_bpf, "5, buffer, 64"), "EPERM"),
        ("E74", call(libc::SYS_perf_event_open, "buffer, 0, -1, -1, 0"), "EPERM"),
        ("E76", call(libc::SYS_userfaultfd, "1"), "EPERM"),
        ("E77 setup", call(libc::SYS_io_uring_setup, "4, buffer"), "ENOSYS"),
        ("E77 enter", call(libc::SYS_io_uring_enter, "0, 0, 0, 0, 0, 0"), "ENOSYS"),
        ("E77 register", call(libc::SYS_io_uring_register, "0, 0, 0, 0"), "ENOSYS"),
        ("E79", call(libc::SYS_kexec_load, "0, 0, 0, 0"), "EPERM"),
        ("E80", call(libc::SYS_reboot, "0, 0, 0, 0"), "EPERM"),
        ("E82", call(libc::SYS_fanotify_init, "0x200, 0"), "EPERM"),
        ("E83", call(libc::SYS_quotactl, "0, 0, 0, 0"), "EPERM"),
        ("E88", call(0x4000_00a5, "0, 0, 0, 0, 0"), "ENOSYS"),
        ("E89", call(10_000, "0"), "ENOSYS"),
        ("E89 minus", call(-1, "0"), "ENOSYS"),
        ("E91", call(libc::SYS_prctl, "38, 0, 0, 0, 0"), "EINVAL"),
        ("E92 bits", call(libc::SYS_prctl, "28, 0, 0, 0, 0"), "EPERM"),
        ("E92 ambient", call(libc::SYS_prctl, "47, 2, 21, 0, 0"), "EPERM"),
        (
            "E92 capset",
            call(
                libc::SYS_capset,
                "struct.pack('Ii', 0x20080522, 0), struct.pack('6I', 1 << 21, 1 << 21, 0, 0, 0, 0)",
            ),
            "EPERM",
        ),
        ("keyctl", call(libc::SYS_keyctl, "0, -3, 0"), "EPERM"),
        ("syslog", call(libc::SYS_syslog, "3, buffer, 256"), "EPERM"),
        ("E104 packet", "socket.socket(17, 3, 0)".into(), "EAFNOSUPPORT"),
        ("E104 raw", "socket.socket(2, 3, 1)".into(), "EPERM"),
        ("E106 alg", "socket.socket(38, 5, 0)".into(), "EAFNOSUPPORT"),
        ("E106 vsock", "socket.socket(40, 1, 0)".into(), "EAFNOSUPPORT"),
        ("E107 audit", "socket.socket(16, 3, 9)".into(), "EPROTONOSUPPORT"),
        ("E107 kobject", "socket.socket(16, 3, 15)".into(), "EPROTONOSUPPORT"),
        ("E107 route", "socket.socket(16, 3, 0)".into(), "ok"),
        ("E95", "fcntl.ioctl(os.openpty()[1], 0x5412, b'x')".into(), "EPERM"),
    ]);
}

#[test]
fn a_guest_that_kills_everything_kills_only_itself() {
    let mut vm = Vm::new();
    let (victim, killer) =
        (vm.start("sleep", &["1000"]), vm.start("sh", &["-c", "kill -KILL -1; kill -KILL $$"]));
    let mut ended = Vec::new();
    while ended.len() < 2 {
        if let Event::Exited { process, .. } = vm.event() {
            ended.push(process);
        }
    }
    ended.sort_unstable();
    assert_eq!(ended, [victim, killer]);
    assert_eq!(vm.sh("echo alive").output, "alive\n");
}

#[test]
fn a_child_that_asks_init_to_trace_it_runs_on() {
    let mut vm = Vm::new();
    let program = format!(
        "import ctypes, os, signal\nlibc = ctypes.CDLL(None)\nlibc.syscall({}, 0, 0, 0, 0)\n\
         os.kill(os.getpid(), signal.SIGSTOP)\nprint('on')",
        libc::SYS_ptrace
    );
    if let Some(done) = vm.python(&program) {
        assert_eq!((done.code, done.output.as_str()), (Some(0), "on\n"), "E46");
    }
}

#[test]
fn a_forged_hint_makes_no_exit() {
    // `agentos` may not even signal an init that has another uid.
    let mut vm = Vm::with(&root());
    let sleeper = vm.start("sleep", &["1000"]);
    let info = format!("struct.pack('iiiiii', {}, 0, -1, 0, 2, 1000) + bytes(104)", libc::SIGCHLD);
    attempt(
        &mut vm,
        &[("E41", format!("call({}, 1, {}, {info})", libc::SYS_rt_sigqueueinfo, libc::SIGCHLD), "ok")],
    );
    vm.booted.commands.signal(1, sleeper, libc::SIGKILL, SignalTarget::Process);
    assert_eq!(vm.event(), Event::Signaled { token: 1, delivered: 1 });
    assert!(
        matches!(vm.event(), Event::Exited { process, exit } if process == sleeper && exit.signal == Some(9))
    );
}
