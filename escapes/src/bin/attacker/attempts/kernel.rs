//! Parts of the kernel that know nothing of namespaces.

use super::{Attempt, Got, done, tries};
use crate::sys::{path, syscall};

pub(super) fn all() -> Vec<Attempt> {
    vec![
        Attempt::new("E73 prog", || bpf(5)).alone(),
        Attempt::new("E73 map", || bpf(0)).alone(),
        Attempt::new("E74", perf_event),
        tries!("E76", SYS_userfaultfd, 0).alone(),
        tries!("E76 user", SYS_userfaultfd, 1),
        Attempt::new("E77 setup", || done(syscall!(libc::SYS_io_uring_setup, 4, &mut [0u32; 30]))),
        tries!("E77 enter", SYS_io_uring_enter, -1, 0, 0, 0, 0, 0),
        tries!("E77 register", SYS_io_uring_register, -1, 0, 0, 0),
        tries!("E79 load", SYS_kexec_load, 0, 0, 0, 0).alone(),
        tries!("E79 file", SYS_kexec_file_load, -1, -1, 0, 0, 0).alone(),
        // With a wrong magic number, so that it does nothing where it is allowed.
        tries!("E80", SYS_reboot, 0, 0, 0, 0),
        tries!("E82", SYS_fanotify_init, 0x200 /* FAN_REPORT_FID */, 0),
        tries!("E83", SYS_quotactl, 0x0080_0004 /* Q_GETFMT */ << 8, 0, 0, 0),
        tries!("E83 fd", SYS_quotactl_fd, -1, 0, 0, 0),
        Attempt::new("E85 iopl", || port(172, [3, 0, 0])).alone(),
        Attempt::new("E85 ioperm", || port(173, [0x80, 1, 1])).alone(),
        Attempt::new("E86", foreign_architecture),
        Attempt::new("E88 mount", || done(syscall!(0x4000_00a5))).alone(),
        Attempt::new("E88 getpid", || done(syscall!(0x4000_0027))).alone(),
        Attempt::new("E89", || done(syscall!(10_000))).alone(),
        Attempt::new("E89 minus", || done(syscall!(-1))).alone(),
        tries!("keyctl", SYS_keyctl, 0, -3, 0),
        Attempt::new("add_key", || {
            let (kind, name) = (path("user"), path("agentvm"));
            let (kind, name) = (kind.as_c_str(), name.as_c_str());
            done(syscall!(libc::SYS_add_key, kind, name, &[0u8; 1], 1, -2 /* process keyring */))
        }),
        tries!("request_key", SYS_request_key, path("user").as_c_str(), path("x").as_c_str(), 0, 0),
        tries!("syslog", SYS_syslog, 3, &[0u8; 64], 64).alone(),
        tries!("settimeofday", SYS_settimeofday, 0, 0).alone(),
        tries!("clock_settime", SYS_clock_settime, 9999, &[0i64; 2]),
        tries!("adjtimex", SYS_adjtimex, &mut [0u64; 32]),
        tries!("clock_adjtime", SYS_clock_adjtime, 0, &mut [0u64; 32]),
        tries!("acct", SYS_acct, 0).alone(),
        tries!("swapon", SYS_swapon, path("/tmp/none").as_c_str(), 0).alone(),
        tries!("swapoff", SYS_swapoff, path("/tmp/none").as_c_str()).alone(),
        tries!("init_module", SYS_init_module, 0, 0, 0).alone(),
        tries!("finit_module", SYS_finit_module, -1, 0, 0).alone(),
        tries!("delete_module", SYS_delete_module, path("none").as_c_str(), 0).alone(),
    ]
}

fn bpf(command: i32) -> Got {
    done(syscall!(libc::SYS_bpf, command, &[0u64; 16], 64))
}

/// A software clock of this very process, without the kernel's share.
fn perf_event() -> Got {
    const EXCLUDE_KERNEL_AND_HYPERVISOR: u64 = 0b110_0000;
    let mut attributes = [0u64; 16];
    attributes[0] = 1 | 128 << 32;
    attributes[5] = EXCLUDE_KERNEL_AND_HYPERVISOR;
    done(syscall!(libc::SYS_perf_event_open, &attributes, 0, -1, -1, 0))
}

/// `iopl(2)` and `ioperm(2)`, which are x86's.
fn port(number: i64, arguments: [i32; 3]) -> Got {
    let number = if cfg!(target_arch = "x86_64") { number } else { -1 };
    done(syscall!(number, arguments[0], arguments[1], arguments[2]))
}

/// `unshare(CLONE_NEWUSER)` as a 32-bit program asks for it.
#[cfg(target_arch = "x86_64")]
fn foreign_architecture() -> Got {
    let mut answer = 310u64;
    // SAFETY: the call takes no pointer; the gate clobbers r8 to r11 at most.
    unsafe {
        std::arch::asm!(
            "xchg rbx, {flags}", "int 0x80", "xchg rbx, {flags}",
            flags = inout(reg) i64::from(libc::CLONE_NEWUSER) => _,
            inout("rax") answer, out("r8") _, out("r9") _, out("r10") _, out("r11") _,
        );
    }
    match i32::try_from(answer.cast_signed()) {
        Ok(negative @ ..0) => Err(std::io::Error::from_raw_os_error(-negative)),
        _ => Ok(String::new()),
    }
}

/// aarch64 has no way into another architecture's table from a 64-bit program.
#[cfg(not(target_arch = "x86_64"))]
fn foreign_architecture() -> Got {
    Err(std::io::Error::from_raw_os_error(libc::ENOEXEC))
}
