//! The program in front of the others: only this architecture, only numbers a kernel is known to have.

use seccompiler::{BpfProgram, TargetArch, sock_filter};

use super::syscalls::HIGHEST;

/// `AUDIT_ARCH_*` (`linux/audit.h`): the ELF machine with bits for 64 bit and little endian.
const AUDIT_ARCH_X86_64: u32 = 0xc000_003e;
const AUDIT_ARCH_AARCH64: u32 = 0xc000_00b7;
const AUDIT_ARCH_RISCV64: u32 = 0xc000_00f3;

/// Offsets in `struct seccomp_data`.
const NUMBER: u32 = 0;
const ARCH: u32 = 4;

/// Instructions (`linux/bpf_common.h`).
const LOAD: u16 = 0x20; // BPF_LD | BPF_W | BPF_ABS
const IF_EQUAL: u16 = 0x15; // BPF_JMP | BPF_JEQ | BPF_K
const IF_GREATER: u16 = 0x25; // BPF_JMP | BPF_JGT | BPF_K
const RETURN: u16 = 0x06; // BPF_RET | BPF_K

/// `audit` value of an architecture.
pub(super) fn audit_arch(arch: TargetArch) -> u32 {
    match arch {
        TargetArch::x86_64 => AUDIT_ARCH_X86_64,
        TargetArch::aarch64 => AUDIT_ARCH_AARCH64,
        TargetArch::riscv64 => AUDIT_ARCH_RISCV64,
    }
}

/// Kills a foreign architecture; ENOSYS for a number above the highest. x32 sets bit 30 and -1 sets all, so both are.
pub(super) fn program(arch: TargetArch) -> BpfProgram {
    let step = |code, jt, jf, k| sock_filter { code, jt, jf, k };
    vec![
        step(LOAD, 0, 0, ARCH),
        step(IF_EQUAL, 1, 0, audit_arch(arch)),
        step(RETURN, 0, 0, libc::SECCOMP_RET_KILL_PROCESS),
        step(LOAD, 0, 0, NUMBER),
        step(IF_GREATER, 0, 1, HIGHEST),
        step(RETURN, 0, 0, libc::SECCOMP_RET_ERRNO | libc::ENOSYS.cast_unsigned()),
        step(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
    ]
}
