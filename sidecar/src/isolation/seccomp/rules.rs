//! What is refused, by the errno it is refused with. Arguments that the kernel takes as `int` are compared as 32 bit:
//! it ignores the upper half, so a rule must too.

use rustix::io::Errno;

use super::syscalls::{self as call, Syscall};

/// A call that is refused with `errno` if all conditions hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rule {
    pub(super) call: Syscall,
    pub(super) conditions: Vec<Condition>,
    pub(super) errno: Errno,
}

/// Something about the lower half of an argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Condition {
    /// From 0 on.
    pub(super) argument: u8,
    pub(super) test: Test,
}

/// What it is compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Test {
    Is(u32),
    IsNot(u32),
    Masked { mask: u32, value: u32 },
}

/// Refused whatever the arguments are: they change what a VM is made of, or reach parts of the kernel that know
/// nothing of namespaces.
const NEVER: [Syscall; 41] = [
    call::ACCT,
    call::ADD_KEY,
    call::ADJTIMEX,
    call::BPF,
    call::CHROOT,
    call::CLOCK_ADJTIME,
    call::CLOCK_SETTIME,
    call::CREATE_MODULE,
    call::DELETE_MODULE,
    call::FANOTIFY_INIT,
    call::FINIT_MODULE,
    call::FSCONFIG,
    call::FSMOUNT,
    call::FSOPEN,
    call::FSPICK,
    call::INIT_MODULE,
    call::IOPERM,
    call::IOPL,
    call::KEXEC_FILE_LOAD,
    call::KEXEC_LOAD,
    call::KEYCTL,
    call::MOUNT,
    call::MOUNT_SETATTR,
    call::MOVE_MOUNT,
    call::OPEN_BY_HANDLE_AT,
    call::OPEN_TREE,
    call::OPEN_TREE_ATTR,
    call::PERF_EVENT_OPEN,
    call::PIVOT_ROOT,
    call::PROCESS_MADVISE,
    call::QUOTACTL,
    call::QUOTACTL_FD,
    call::REBOOT,
    call::REQUEST_KEY,
    call::SETNS,
    call::SETTIMEOFDAY,
    call::SWAPOFF,
    call::SWAPON,
    call::SYSLOG,
    call::UMOUNT2,
    call::USERFAULTFD,
];

/// Answered as by a kernel that lacks them; C libraries and runtimes then use something older. `clone3` hides its
/// flags behind a pointer, where no filter can look.
const ABSENT: [Syscall; 4] =
    [call::CLONE3, call::IO_URING_ENTER, call::IO_URING_REGISTER, call::IO_URING_SETUP];

/// Namespaces nobody in a VM makes. `CLONE_NEWUTS` is not among them: init needs it for every process it starts, and
/// a guest lacks the capability.
const NAMESPACES: [i32; 6] = [
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWNS,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWCGROUP,
];

/// `CLONE_NEWTIME` (`unshare(2)` only: `clone` keeps the exit signal in that bit).
const NEWTIME: u32 = 0x80;

/// Terminal requests that put text into somebody else's input or load kernel code (`ioctl_tty(2)`).
const TERMINAL_REQUESTS: [u32; 3] =
    [0x5412 /* TIOCSTI */, 0x541c /* TIOCLINUX */, 0x5423 /* TIOCSETD */];

/// Families a VM may use (`address_families(7)`).
const FAMILIES: [i32; 4] = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];

/// Internet socket types beside stream and datagram, and the mask that leaves the type (`socket(2)`).
const RAW_TYPES: [u32; 5] =
    [3 /* RAW */, 4 /* RDM */, 5 /* SEQPACKET */, 6 /* DCCP */, 10 /* PACKET */];
const TYPE_MASK: u32 = 0xf;

/// Internet protocols a VM may use: the default of a type, ICMP echo, TCP, UDP.
const PROTOCOLS: [i32; 5] =
    [libc::IPPROTO_IP, libc::IPPROTO_ICMP, libc::IPPROTO_TCP, libc::IPPROTO_UDP, libc::IPPROTO_ICMPV6];

/// What is refused in every VM.
pub(super) fn of_all() -> Vec<Rule> {
    let mut rules = Vec::new();
    rules.extend(NEVER.map(|call| refuse(Errno::PERM, call, [])));
    rules.extend(ABSENT.map(|call| refuse(Errno::NOSYS, call, [])));
    for flag in NAMESPACES.map(i32::cast_unsigned) {
        rules.push(refuse(Errno::PERM, call::CLONE, [has_bits(0, flag)]));
        rules.push(refuse(Errno::PERM, call::UNSHARE, [has_bits(0, flag)]));
    }
    rules.push(refuse(Errno::PERM, call::UNSHARE, [has_bits(0, NEWTIME)]));
    rules.extend(TERMINAL_REQUESTS.map(|request| refuse(Errno::PERM, call::IOCTL, [is(1, request)])));
    rules.extend(sockets());
    rules
}

fn sockets() -> Vec<Rule> {
    let mut rules = Vec::new();
    for call in [call::SOCKET, call::SOCKETPAIR] {
        let other = FAMILIES.map(|family| is_not(0, family.cast_unsigned()));
        rules.push(refuse(Errno::AFNOSUPPORT, call, other));
    }
    for family in [libc::AF_INET, libc::AF_INET6].map(i32::cast_unsigned) {
        rules.extend(
            RAW_TYPES
                .map(|kind| refuse(Errno::PERM, call::SOCKET, [is(0, family), masked(1, TYPE_MASK, kind)])),
        );
        let other = PROTOCOLS.map(|protocol| is_not(2, protocol.cast_unsigned()));
        rules.push(refuse(Errno::PROTONOSUPPORT, call::SOCKET, [is(0, family)].into_iter().chain(other)));
    }
    let netlink = [is(0, libc::AF_NETLINK.cast_unsigned()), is_not(2, libc::NETLINK_ROUTE.cast_unsigned())];
    rules.push(refuse(Errno::PROTONOSUPPORT, call::SOCKET, netlink));
    rules
}

/// What is refused beside that where guest processes have init's uid: calls that name process 1, its group, or every
/// process of a user.
pub(super) fn about_init() -> Vec<Rule> {
    const INIT: u32 = 1;
    let mut rules = Vec::new();
    for call in [
        call::PRLIMIT64,
        call::SCHED_SETAFFINITY,
        call::SCHED_SETATTR,
        call::SCHED_SETPARAM,
        call::SCHED_SETSCHEDULER,
    ] {
        rules.push(refuse(Errno::PERM, call, [is(0, INIT)]));
    }
    // Which of process, group, user: 0 to 2 for `setpriority(2)`, 1 to 3 for `ioprio_set(2)`.
    for (call, process) in [(call::SETPRIORITY, 0), (call::IOPRIO_SET, 1)] {
        rules.push(refuse(Errno::PERM, call, [is(0, process), is(1, INIT)]));
        rules.push(refuse(Errno::PERM, call, [is(0, process + 1), is(1, INIT)]));
        rules.push(refuse(Errno::PERM, call, [is(0, process + 2)]));
    }
    rules
}

/// What a guest without a network and an IPC namespace of its own is refused: everything that finds others by a name or a
/// number of the host. Sockets of the host, `docker.sock` or a session bus, do whatever their owner may.
const OF_THE_HOST: [Syscall; 13] = [
    call::MQ_OPEN,
    call::MQ_UNLINK,
    call::MSGCTL,
    call::MSGGET,
    call::MSGRCV,
    call::MSGSND,
    call::SEMCTL,
    call::SEMGET,
    call::SEMOP,
    call::SEMTIMEDOP,
    call::SHMAT,
    call::SHMCTL,
    call::SHMGET,
];

/// What is refused before all that in a VM without namespaces.
pub(super) fn about_the_host() -> Vec<Rule> {
    let mut rules: Vec<Rule> = OF_THE_HOST.map(|call| refuse(Errno::PERM, call, [])).into();
    rules.push(refuse(Errno::AFNOSUPPORT, call::SOCKET, []));
    // A pair of connected streams stays one; a datagram socket sends to any name. Raw ones are datagrams too.
    for kind in [libc::SOCK_DGRAM, libc::SOCK_RAW].map(i32::cast_unsigned) {
        rules.push(refuse(Errno::PROTONOSUPPORT, call::SOCKETPAIR, [masked(1, TYPE_MASK, kind)]));
    }
    // Limits of any other process of the user.
    rules.push(refuse(Errno::PERM, call::PRLIMIT64, [is_not(0, 0)]));
    rules
}

/// Refuses calls by their number on any architecture, and nothing else.
#[cfg(test)]
pub(super) fn about(numbers: impl IntoIterator<Item = u32>, errno: Errno) -> Vec<Rule> {
    numbers.into_iter().map(|number| refuse(errno, call::both(number), [])).collect()
}

fn refuse(errno: Errno, call: Syscall, conditions: impl IntoIterator<Item = Condition>) -> Rule {
    Rule { call, conditions: conditions.into_iter().collect(), errno }
}

fn has_bits(argument: u8, bits: u32) -> Condition {
    masked(argument, bits, bits)
}

fn is(argument: u8, value: u32) -> Condition {
    Condition { argument, test: Test::Is(value) }
}

fn is_not(argument: u8, value: u32) -> Condition {
    Condition { argument, test: Test::IsNot(value) }
}

fn masked(argument: u8, mask: u32, value: u32) -> Condition {
    Condition { argument, test: Test::Masked { mask, value } }
}
