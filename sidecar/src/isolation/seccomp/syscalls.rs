//! Numbers of the system calls the rules name, for each architecture (`arch/x86/entry/syscalls/syscall_64.tbl` and
//! `include/uapi/asm-generic/unistd.h` of Linux 6.18). From 424 on all architectures agree.

use super::Arch;

/// The highest number Linux 6.18 has, on both architectures: `file_setattr`.
pub(super) const HIGHEST: u32 = 469;

/// A system call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Syscall {
    x86_64: Option<u32>,
    aarch64: Option<u32>,
}

impl Syscall {
    /// Its number, where the architecture has it.
    pub(super) fn number(self, arch: Arch) -> Option<u32> {
        match arch {
            Arch::X86_64 => self.x86_64,
            Arch::Aarch64 => self.aarch64,
        }
    }
}

const fn each(x86_64: u32, aarch64: u32) -> Syscall {
    Syscall { x86_64: Some(x86_64), aarch64: Some(aarch64) }
}

pub(super) const fn both(number: u32) -> Syscall {
    each(number, number)
}

const fn only_x86_64(number: u32) -> Syscall {
    Syscall { x86_64: Some(number), aarch64: None }
}

/// Declares constants, and for the tests a list of them with their names.
macro_rules! syscalls {
    ($($name:ident = $numbers:expr;)*) => {
        $(pub(super) const $name: Syscall = $numbers;)*
        #[cfg(test)]
        pub(super) const ALL: &[(&str, Syscall)] = &[$((stringify!($name), $name)),*];
    };
}

syscalls! {
    ACCT = each(163, 89);
    ADD_KEY = each(248, 217);
    ADJTIMEX = each(159, 171);
    BPF = each(321, 280);
    CHROOT = each(161, 51);
    CLOCK_ADJTIME = each(305, 266);
    CLOCK_SETTIME = each(227, 112);
    CLONE = each(56, 220);
    CLONE3 = both(435);
    CREATE_MODULE = only_x86_64(174);
    DELETE_MODULE = each(176, 106);
    FANOTIFY_INIT = each(300, 262);
    FINIT_MODULE = each(313, 273);
    FSCONFIG = both(431);
    FSMOUNT = both(432);
    FSOPEN = both(430);
    FSPICK = both(433);
    INIT_MODULE = each(175, 105);
    IOCTL = each(16, 29);
    IOPERM = only_x86_64(173);
    IOPL = only_x86_64(172);
    IOPRIO_SET = each(251, 30);
    IO_URING_ENTER = both(426);
    IO_URING_REGISTER = both(427);
    IO_URING_SETUP = both(425);
    KEXEC_FILE_LOAD = each(320, 294);
    KEXEC_LOAD = each(246, 104);
    KEYCTL = each(250, 219);
    MOUNT = each(165, 40);
    MOUNT_SETATTR = both(442);
    MOVE_MOUNT = both(429);
    MQ_OPEN = each(240, 180);
    MQ_UNLINK = each(241, 181);
    MSGCTL = each(71, 187);
    MSGGET = each(68, 186);
    MSGRCV = each(70, 188);
    MSGSND = each(69, 189);
    OPEN_BY_HANDLE_AT = each(304, 265);
    OPEN_TREE = both(428);
    OPEN_TREE_ATTR = both(467);
    PERF_EVENT_OPEN = each(298, 241);
    PIVOT_ROOT = each(155, 41);
    PRLIMIT64 = each(302, 261);
    PROCESS_MADVISE = both(440);
    QUOTACTL = each(179, 60);
    QUOTACTL_FD = both(443);
    REBOOT = each(169, 142);
    REQUEST_KEY = each(249, 218);
    SCHED_SETAFFINITY = each(203, 122);
    SCHED_SETATTR = each(314, 274);
    SCHED_SETPARAM = each(142, 118);
    SCHED_SETSCHEDULER = each(144, 119);
    SEMCTL = each(66, 191);
    SEMGET = each(64, 190);
    SEMOP = each(65, 193);
    SEMTIMEDOP = each(220, 192);
    SETNS = each(308, 268);
    SETPRIORITY = each(141, 140);
    SETTIMEOFDAY = each(164, 170);
    SHMAT = each(30, 196);
    SHMCTL = each(31, 195);
    SHMGET = each(29, 194);
    SOCKET = each(41, 198);
    SOCKETPAIR = each(53, 199);
    SWAPOFF = each(168, 225);
    SWAPON = each(167, 224);
    SYSLOG = each(103, 116);
    UMOUNT2 = each(166, 39);
    UNSHARE = each(272, 97);
    USERFAULTFD = each(323, 282);
}
