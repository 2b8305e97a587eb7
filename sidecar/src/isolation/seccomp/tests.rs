//! The rules, for both architectures, over the whole system call table.

use std::collections::BTreeSet;

use super::interpreter::{Call, Verdict, verdict};
use super::program::audit_arch;
use super::syscalls::{self as call, ALL, HIGHEST, Syscall};
use super::{Arch, Programs};

const ARCHES: [Arch; 2] = [Arch::X86_64, Arch::Aarch64];

/// Refused whatever the arguments are: written down here once more, by name.
const REFUSED: [&str; 41] = [
    "ACCT",
    "ADD_KEY",
    "ADJTIMEX",
    "BPF",
    "CHROOT",
    "CLOCK_ADJTIME",
    "CLOCK_SETTIME",
    "CREATE_MODULE",
    "DELETE_MODULE",
    "FANOTIFY_INIT",
    "FINIT_MODULE",
    "FSCONFIG",
    "FSMOUNT",
    "FSOPEN",
    "FSPICK",
    "INIT_MODULE",
    "IOPERM",
    "IOPL",
    "KEXEC_FILE_LOAD",
    "KEXEC_LOAD",
    "KEYCTL",
    "MOUNT",
    "MOUNT_SETATTR",
    "MOVE_MOUNT",
    "OPEN_BY_HANDLE_AT",
    "OPEN_TREE",
    "OPEN_TREE_ATTR",
    "PERF_EVENT_OPEN",
    "PIVOT_ROOT",
    "PROCESS_MADVISE",
    "QUOTACTL",
    "QUOTACTL_FD",
    "REBOOT",
    "REQUEST_KEY",
    "SETNS",
    "SETTIMEOFDAY",
    "SWAPOFF",
    "SWAPON",
    "SYSLOG",
    "UMOUNT2",
    "USERFAULTFD",
];
const ABSENT: [&str; 4] = ["CLONE3", "IO_URING_ENTER", "IO_URING_REGISTER", "IO_URING_SETUP"];

struct Filter {
    arch: Arch,
    programs: Programs,
    shares_uid: bool,
}

fn filters(shares_uid: bool) -> impl Iterator<Item = Filter> {
    ARCHES.into_iter().map(move |arch| Filter { arch, programs: Programs::compile_for(arch), shares_uid })
}

impl Filter {
    fn number(&self, number: u32, arguments: &[u64]) -> Verdict {
        let mut six = [0; 6];
        six[..arguments.len()].copy_from_slice(arguments);
        let call = Call { arch: audit_arch(self.arch), number, arguments: six };
        verdict(self.programs.program(self.shares_uid), &call)
    }

    fn call(&self, call: Syscall, arguments: &[u64]) -> Verdict {
        self.number(call.number(self.arch).expect("both have it"), arguments)
    }
}

fn numbers(names: &[&str], arch: Arch) -> BTreeSet<u32> {
    ALL.iter().filter(|(name, _)| names.contains(name)).filter_map(|(_, call)| call.number(arch)).collect()
}

#[test]
fn over_the_whole_table_exactly_the_listed_calls_are_refused_outright() {
    for filter in filters(false).chain(filters(true)) {
        refuses_exactly(&REFUSED, filter.arch, |number| filter.number(number, &[]));
    }
}

/// Looks at the whole table, with all-zero arguments.
fn refuses_exactly(refused: &[&str], arch: Arch, judge: impl Fn(u32) -> Verdict) {
    let (refused, absent) = (numbers(refused, arch), numbers(&ABSENT, arch));
    // With such arguments they ask for AF_UNSPEC, which no list allows.
    let sockets = numbers(&["SOCKET", "SOCKETPAIR"], arch);
    for number in 0..=HIGHEST {
        let expected = match number {
            number if refused.contains(&number) => Verdict::Errno(libc::EPERM),
            number if absent.contains(&number) => Verdict::Errno(libc::ENOSYS),
            number if sockets.contains(&number) => Verdict::Errno(libc::EAFNOSUPPORT),
            _ => Verdict::Allow,
        };
        assert_eq!(judge(number), expected, "{arch:?} {number}");
    }
}

#[test]
fn over_the_whole_table_sharing_a_uid_refuses_what_names_init_and_nothing_else() {
    const NAMING: [&str; 7] = [
        "IOPRIO_SET",
        "PRLIMIT64",
        "SCHED_SETAFFINITY",
        "SCHED_SETATTR",
        "SCHED_SETPARAM",
        "SCHED_SETSCHEDULER",
        "SETPRIORITY",
    ];
    for (own, shared) in filters(false).zip(filters(true)) {
        let naming = numbers(&NAMING, own.arch);
        for number in 0..=HIGHEST {
            // Process 1; or group 1, or again process 1, of the two calls that take a kind first.
            let arguments = [1, 1, 0, 0, 0, 0];
            let expected = if naming.contains(&number) {
                Verdict::Errno(libc::EPERM)
            } else {
                own.number(number, &arguments)
            };
            assert_eq!(shared.number(number, &arguments), expected, "{:?} {number}", own.arch);
        }
    }
}

#[test]
fn unknown_numbers_are_not_implemented() {
    for filter in filters(true) {
        let x32_mount = 0x4000_00a5;
        for number in [HIGHEST + 1, 10_000, x32_mount, 0x4000_0000, u32::MAX] {
            assert_eq!(filter.number(number, &[]), Verdict::Errno(libc::ENOSYS), "{number:#x}");
        }
    }
}

#[test]
fn a_foreign_architecture_is_killed() {
    for filter in filters(false) {
        for arch in [0x4000_0003, 0x4000_0028, 0] {
            let call = Call { arch, number: 39, arguments: [0; 6] };
            assert_eq!(verdict(filter.programs.program(false), &call), Verdict::Kill, "{arch:#x}");
        }
    }
}

#[test]
fn clone_makes_processes_and_uts_namespaces_and_no_others() {
    const HIGH: u64 = 1 << 32;
    const SIGCHLD: u64 = 0x11;
    for filter in filters(false) {
        let thread = 0x3d_0f00;
        for allowed in [0, SIGCHLD, thread, 0x0400_0000, SIGCHLD | HIGH] {
            assert_eq!(filter.call(call::CLONE, &[allowed]), Verdict::Allow, "{allowed:#x}");
        }
        for namespace in [0x1000_0000u64, 0x0002_0000, 0x2000_0000, 0x4000_0000, 0x0800_0000, 0x0200_0000] {
            for flags in [
                namespace,
                namespace | SIGCHLD,
                namespace | HIGH,
                namespace | thread,
                namespace | 0x0400_0000,
            ] {
                assert_eq!(filter.call(call::CLONE, &[flags]), Verdict::Errno(libc::EPERM), "{flags:#x}");
                assert_eq!(filter.call(call::UNSHARE, &[flags]), Verdict::Errno(libc::EPERM), "{flags:#x}");
            }
        }
        assert_eq!(filter.call(call::UNSHARE, &[0x80]), Verdict::Errno(libc::EPERM));
        assert_eq!(filter.call(call::UNSHARE, &[0x400]), Verdict::Allow);
    }
}

#[test]
fn terminal_injection_is_refused_also_with_upper_bits_set() {
    for filter in filters(false) {
        for request in [0x5412, 0x541c, 0x5423] {
            for upper in [0, 1 << 32, 0xffff_ffff_0000_0000] {
                let verdict = filter.call(call::IOCTL, &[0, request | upper]);
                assert_eq!(verdict, Verdict::Errno(libc::EPERM), "{request:#x}");
            }
        }
        assert_eq!(filter.call(call::IOCTL, &[0, 0x5413]), Verdict::Allow);
    }
}

#[test]
fn sockets_are_local_internet_or_route_netlink() {
    const CLOEXEC: u64 = 0o2_000_000;
    let refused = |errno| Verdict::Errno(errno);
    for filter in filters(false) {
        let socket =
            |family: u64, kind: u64, protocol: u64| filter.call(call::SOCKET, &[family, kind, protocol]);
        for (family, kind, protocol) in [
            (1, 1, 0),
            (1, 5, 0),
            (2, 1, 0),
            (2, 1, 6),
            (2, 2, 17),
            (2, 2, 1),
            (10, 2, 58),
            (16, 3, 0),
            (16, 2, 0),
        ] {
            assert_eq!(socket(family, kind, protocol), Verdict::Allow, "{family} {kind} {protocol}");
            assert_eq!(socket(family, kind | CLOEXEC, protocol), Verdict::Allow);
        }
        for family in [0, 3, 17, 38, 15, 44, 30, 29, 21, 43, 31, 40, u64::from(u32::MAX)] {
            assert_eq!(socket(family, 1, 0), refused(libc::EAFNOSUPPORT), "{family}");
            assert_eq!(
                filter.call(call::SOCKETPAIR, &[family, 1, 0]),
                refused(libc::EAFNOSUPPORT),
                "{family}"
            );
        }
        assert_eq!(socket(0x1_0000_0026, 5, 0), refused(libc::EAFNOSUPPORT));
        for kind in [3, 3 | CLOEXEC, 5, 6, 10, 3 | 1 << 32] {
            assert_eq!(socket(2, kind, 0), refused(libc::EPERM), "{kind:#x}");
            assert_eq!(socket(10, kind, 0), refused(libc::EPERM), "{kind:#x}");
        }
        for netlink in [4, 6, 9, 12, 15] {
            assert_eq!(socket(16, 3, netlink), refused(libc::EPROTONOSUPPORT), "{netlink}");
        }
        for protocol in [132, 136, 115, 262, 33] {
            assert_eq!(socket(2, 1, protocol), refused(libc::EPROTONOSUPPORT), "{protocol}");
        }
    }
}

#[test]
fn where_uids_are_shared_nobody_touches_init_or_a_whole_user() {
    let refused = Verdict::Errno(libc::EPERM);
    for filter in filters(true) {
        let by_pid = [
            call::PRLIMIT64,
            call::SCHED_SETAFFINITY,
            call::SCHED_SETATTR,
            call::SCHED_SETPARAM,
            call::SCHED_SETSCHEDULER,
        ];
        for named in by_pid {
            assert_eq!(filter.call(named, &[1]), refused);
            assert_eq!(filter.call(named, &[1 | 1 << 32]), refused);
            assert_eq!(filter.call(named, &[0]), Verdict::Allow);
            assert_eq!(filter.call(named, &[2]), Verdict::Allow);
        }
        for (named, process) in [(call::SETPRIORITY, 0), (call::IOPRIO_SET, 1)] {
            assert_eq!(filter.call(named, &[process, 1]), refused);
            assert_eq!(filter.call(named, &[process + 1, 1]), refused);
            assert_eq!(filter.call(named, &[process + 2, 0]), refused);
            assert_eq!(filter.call(named, &[process + 2, 77]), refused);
            assert_eq!(filter.call(named, &[process, 0]), Verdict::Allow);
            assert_eq!(filter.call(named, &[process + 1, 0]), Verdict::Allow);
        }
    }
    for filter in filters(false) {
        assert_eq!(filter.call(call::PRLIMIT64, &[1]), Verdict::Allow);
    }
}

#[test]
fn numbers_are_those_of_this_machines_headers() {
    let here = [
        ("ACCT", libc::SYS_acct),
        ("BPF", libc::SYS_bpf),
        ("CHROOT", libc::SYS_chroot),
        ("CLONE", libc::SYS_clone),
        ("CLONE3", libc::SYS_clone3),
        ("FSPICK", libc::SYS_fspick),
        ("IOCTL", libc::SYS_ioctl),
        ("IOPRIO_SET", libc::SYS_ioprio_set),
        ("IO_URING_SETUP", libc::SYS_io_uring_setup),
        ("KEYCTL", libc::SYS_keyctl),
        ("MOUNT", libc::SYS_mount),
        ("MOUNT_SETATTR", libc::SYS_mount_setattr),
        ("OPEN_BY_HANDLE_AT", libc::SYS_open_by_handle_at),
        ("PERF_EVENT_OPEN", libc::SYS_perf_event_open),
        ("PIVOT_ROOT", libc::SYS_pivot_root),
        ("PRLIMIT64", libc::SYS_prlimit64),
        ("PROCESS_MADVISE", libc::SYS_process_madvise),
        ("QUOTACTL", libc::SYS_quotactl),
        ("REBOOT", libc::SYS_reboot),
        ("SCHED_SETATTR", libc::SYS_sched_setattr),
        ("SETNS", libc::SYS_setns),
        ("SETPRIORITY", libc::SYS_setpriority),
        ("SOCKET", libc::SYS_socket),
        ("SOCKETPAIR", libc::SYS_socketpair),
        ("SYSLOG", libc::SYS_syslog),
        ("UMOUNT2", libc::SYS_umount2),
        ("UNSHARE", libc::SYS_unshare),
        ("USERFAULTFD", libc::SYS_userfaultfd),
    ];
    for (name, number) in here {
        let (_, call) = ALL.iter().find(|(listed, _)| *listed == name).expect("it is listed");
        assert_eq!(call.number(Arch::HERE).map(i64::from), Some(number), "{name}");
    }
}

#[test]
fn without_namespaces_everything_that_finds_others_of_the_host_is_refused_as_well() {
    let ipc = [
        "MQ_OPEN",
        "MQ_UNLINK",
        "MSGCTL",
        "MSGGET",
        "MSGRCV",
        "MSGSND",
        "SEMCTL",
        "SEMGET",
        "SEMOP",
        "SEMTIMEDOP",
        "SHMAT",
        "SHMCTL",
        "SHMGET",
    ];
    for arch in ARCHES {
        let program = Programs::compile_for_host(arch);
        let judge =
            |number, arguments| verdict(&program, &Call { arch: audit_arch(arch), number, arguments });
        refuses_exactly(&[&REFUSED[..], &ipc].concat(), arch, |number| judge(number, [0; 6]));
        let call = |call: Syscall, arguments| judge(call.number(arch).unwrap(), arguments);
        for family in [libc::AF_UNIX, libc::AF_INET, libc::AF_NETLINK] {
            let family = u64::from(family.cast_unsigned());
            assert_eq!(call(call::SOCKET, [family, 1, 0, 0, 0, 0]), Verdict::Errno(libc::EAFNOSUPPORT));
        }
        let pair = |kind: i32| call(call::SOCKETPAIR, [1, u64::from(kind.cast_unsigned()), 0, 0, 0, 0]);
        for kind in [libc::SOCK_STREAM, libc::SOCK_SEQPACKET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC] {
            assert_eq!(pair(kind), Verdict::Allow);
        }
        for kind in [libc::SOCK_DGRAM, libc::SOCK_RAW, libc::SOCK_DGRAM | libc::SOCK_NONBLOCK] {
            assert_eq!(pair(kind), Verdict::Errno(libc::EPROTONOSUPPORT));
        }
        assert_eq!(call(call::PRLIMIT64, [4711, 7, 0, 0, 0, 0]), Verdict::Errno(libc::EPERM));
    }
}
