//! What is refused, by the errno it is refused with. Arguments that the kernel takes as `int` are compared as 32 bit:
//! it ignores the upper half, so a rule must too.

use std::collections::BTreeMap;

use seccompiler::{SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompRule, TargetArch};

use super::syscalls::{self as call, Syscall};

/// Rules by system call number; a call without rules is refused whatever its arguments are.
pub(super) type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// Refused whatever the arguments are: they change what a VM is made of, or reach parts of the kernel that know
/// nothing of namespaces.
const NEVER: [Syscall; 41] = [
    call::ACCT, call::ADD_KEY, call::ADJTIMEX, call::BPF, call::CHROOT, call::CLOCK_ADJTIME, call::CLOCK_SETTIME,
    call::CREATE_MODULE, call::DELETE_MODULE, call::FANOTIFY_INIT, call::FINIT_MODULE, call::FSCONFIG, call::FSMOUNT,
    call::FSOPEN, call::FSPICK, call::INIT_MODULE, call::IOPERM, call::IOPL, call::KEXEC_FILE_LOAD, call::KEXEC_LOAD,
    call::KEYCTL, call::MOUNT, call::MOUNT_SETATTR, call::MOVE_MOUNT, call::OPEN_BY_HANDLE_AT, call::OPEN_TREE,
    call::OPEN_TREE_ATTR, call::PERF_EVENT_OPEN, call::PIVOT_ROOT, call::PROCESS_MADVISE, call::QUOTACTL,
    call::QUOTACTL_FD, call::REBOOT, call::REQUEST_KEY, call::SETNS, call::SETTIMEOFDAY, call::SWAPOFF, call::SWAPON,
    call::SYSLOG, call::UMOUNT2, call::USERFAULTFD,
];

/// Answered as by a kernel that lacks them; C libraries and runtimes then use something older. `clone3` hides its
/// flags behind a pointer, where no filter can look.
const ABSENT: [Syscall; 4] =
    [call::CLONE3, call::IO_URING_ENTER, call::IO_URING_REGISTER, call::IO_URING_SETUP];

/// Namespaces nobody in a VM makes. `CLONE_NEWUTS` is not among them: init needs it for every process it starts, and
/// a guest lacks the capability.
const NAMESPACES: [i32; 6] = [
    libc::CLONE_NEWUSER, libc::CLONE_NEWNS, libc::CLONE_NEWPID, libc::CLONE_NEWNET, libc::CLONE_NEWIPC,
    libc::CLONE_NEWCGROUP,
];

/// `CLONE_NEWTIME` (`unshare(2)` only: `clone` keeps the exit signal in that bit).
const NEWTIME: u32 = 0x80;

/// Terminal requests that put text into somebody else's input or load kernel code (`ioctl_tty(2)`).
const TERMINAL_REQUESTS: [u32; 3] = [0x5412 /* TIOCSTI */, 0x541c /* TIOCLINUX */, 0x5423 /* TIOCSETD */];

/// Families a VM may use (`address_families(7)`).
const FAMILIES: [i32; 4] = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];

/// Internet socket types beside stream and datagram, and the mask that leaves the type (`socket(2)`).
const RAW_TYPES: [u32; 5] = [3 /* RAW */, 4 /* RDM */, 5 /* SEQPACKET */, 6 /* DCCP */, 10 /* PACKET */];
const TYPE_MASK: u32 = 0xf;

/// Internet protocols a VM may use: the default of a type, ICMP echo, TCP, UDP.
const PROTOCOLS: [i32; 5] =
    [libc::IPPROTO_IP, libc::IPPROTO_ICMP, libc::IPPROTO_TCP, libc::IPPROTO_UDP, libc::IPPROTO_ICMPV6];

/// EPERM.
pub(super) fn not_permitted(arch: TargetArch) -> Rules {
    let mut rules = Rules::new();
    for call in NEVER {
        add(&mut rules, arch, call, Vec::new());
    }
    let namespaces = NAMESPACES.map(i32::cast_unsigned).map(|flag| vec![has_bits(0, flag)]);
    let newtime = vec![has_bits(0, NEWTIME)];
    add(&mut rules, arch, call::CLONE, namespaces.to_vec());
    add(&mut rules, arch, call::UNSHARE, namespaces.into_iter().chain([newtime]).collect());
    add(&mut rules, arch, call::IOCTL, TERMINAL_REQUESTS.map(|request| vec![is(1, request)]).to_vec());
    let raw = internet_families().flat_map(|family| {
        RAW_TYPES.map(|kind| vec![is(0, family), masked(1, TYPE_MASK, kind)])
    });
    add(&mut rules, arch, call::SOCKET, raw.collect());
    rules
}

/// ENOSYS.
pub(super) fn not_there(arch: TargetArch) -> Rules {
    let mut rules = Rules::new();
    for call in ABSENT {
        add(&mut rules, arch, call, Vec::new());
    }
    rules
}

/// EAFNOSUPPORT.
pub(super) fn address_families(arch: TargetArch) -> Rules {
    let mut rules = Rules::new();
    for call in [call::SOCKET, call::SOCKETPAIR] {
        let other = FAMILIES.map(|family| is_not(0, family.cast_unsigned())).to_vec();
        add(&mut rules, arch, call, vec![other]);
    }
    rules
}

/// EPROTONOSUPPORT.
pub(super) fn protocols(arch: TargetArch) -> Rules {
    let netlink = vec![
        is(0, libc::AF_NETLINK.cast_unsigned()),
        is_not(2, libc::NETLINK_ROUTE.cast_unsigned()),
    ];
    let internet = internet_families().map(|family| {
        let other = PROTOCOLS.map(|protocol| is_not(2, protocol.cast_unsigned()));
        [is(0, family)].into_iter().chain(other).collect()
    });
    let mut rules = Rules::new();
    add(&mut rules, arch, call::SOCKET, internet.chain([netlink]).collect());
    rules
}

/// EPERM, where guest processes have init's uid: calls that name process 1, its group, or every process of a user.
pub(super) fn about_init(arch: TargetArch) -> Rules {
    const INIT: u32 = 1;
    let mut rules = Rules::new();
    for call in [
        call::PRLIMIT64,
        call::SCHED_SETAFFINITY,
        call::SCHED_SETATTR,
        call::SCHED_SETPARAM,
        call::SCHED_SETSCHEDULER,
    ] {
        add(&mut rules, arch, call, vec![vec![is(0, INIT)]]);
    }
    // Which of process, group, user: 0 to 2 for `setpriority(2)`, 1 to 3 for `ioprio_set(2)`.
    for (call, process) in [(call::SETPRIORITY, 0), (call::IOPRIO_SET, 1)] {
        let named = [process, process + 1].map(|which| vec![is(0, which), is(1, INIT)]);
        let user = vec![is(0, process + 2)];
        add(&mut rules, arch, call, named.into_iter().chain([user]).collect());
    }
    rules
}

fn internet_families() -> impl Iterator<Item = u32> {
    [libc::AF_INET, libc::AF_INET6].into_iter().map(i32::cast_unsigned)
}

/// Refuses a call if all conditions of one of `alternatives` hold; always, if there is none.
fn add(rules: &mut Rules, arch: TargetArch, call: Syscall, alternatives: Vec<Vec<SeccompCondition>>) {
    let Some(number) = call.number(arch) else { return };
    let alternatives = alternatives
        .into_iter()
        .map(|conditions| SeccompRule::new(conditions).expect("no alternative is without conditions"))
        .collect();
    rules.insert(number.into(), alternatives);
}

fn has_bits(argument: u8, bits: u32) -> SeccompCondition {
    masked(argument, bits, bits)
}

fn is(argument: u8, value: u32) -> SeccompCondition {
    condition(argument, SeccompCmpOp::Eq, value)
}

fn is_not(argument: u8, value: u32) -> SeccompCondition {
    condition(argument, SeccompCmpOp::Ne, value)
}

fn masked(argument: u8, mask: u32, value: u32) -> SeccompCondition {
    condition(argument, SeccompCmpOp::MaskedEq(mask.into()), value)
}

fn condition(argument: u8, operator: SeccompCmpOp, value: u32) -> SeccompCondition {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value.into())
        .expect("argument numbers here are below six")
}
