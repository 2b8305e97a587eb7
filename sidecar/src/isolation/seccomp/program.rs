//! From rules to a BPF program (`linux/filter.h`): a binary search over system call numbers, at whose leaves the
//! rules of one call are tried in their order.
//!
//! Short paths matter twice: each call of a guest takes one, and the kernel walks one per system call number when the
//! program is installed, to find those that are always allowed.

use std::collections::BTreeMap;

use libc::sock_filter;

use super::Arch;
use super::rules::{Rule, Test};
use super::syscalls::HIGHEST;

/// `AUDIT_ARCH_*` (`linux/audit.h`): the ELF machine with bits for 64 bit and little endian.
const AUDIT_ARCH_X86_64: u32 = 0xc000_003e;
const AUDIT_ARCH_AARCH64: u32 = 0xc000_00b7;

/// Offsets in `struct seccomp_data`.
pub(super) const NUMBER: u32 = 0;
pub(super) const ARCH: u32 = 4;
pub(super) const ARGUMENTS: u32 = 16;

/// Instructions (`linux/bpf_common.h`).
pub(super) const LOAD: u16 = 0x20; // BPF_LD | BPF_W | BPF_ABS
const AND: u16 = 0x54; // BPF_ALU | BPF_AND | BPF_K
const JUMP: u16 = 0x05; // BPF_JMP | BPF_JA
pub(super) const IF_EQUAL: u16 = 0x15; // BPF_JMP | BPF_JEQ | BPF_K
const IF_GREATER: u16 = 0x25; // BPF_JMP | BPF_JGT | BPF_K
const IF_AT_LEAST: u16 = 0x35; // BPF_JMP | BPF_JGE | BPF_K
pub(super) const RETURN: u16 = 0x06; // BPF_RET | BPF_K

/// What the kernel calls an architecture.
pub(super) fn audit_arch(arch: Arch) -> u32 {
    match arch {
        Arch::X86_64 => AUDIT_ARCH_X86_64,
        Arch::Aarch64 => AUDIT_ARCH_AARCH64,
    }
}

/// Compiles rules for an architecture; those about calls it lacks are left out. Earlier rules win.
pub(super) fn compile(rules: &[Rule], arch: Arch) -> Vec<sock_filter> {
    let mut by_number = BTreeMap::<u32, Vec<&Rule>>::new();
    for rule in rules {
        if let Some(number) = rule.call.number(arch) {
            by_number.entry(number).or_default().push(rule);
        }
    }
    let leaves: Vec<_> =
        by_number.into_iter().map(|(number, rules)| (number, leaf(number, &rules))).collect();
    let mut program = vec![
        step(LOAD, ARCH),
        branch(IF_EQUAL, audit_arch(arch), 1, 0),
        step(RETURN, libc::SECCOMP_RET_KILL_PROCESS),
        step(LOAD, NUMBER),
        // x32 sets bit 30, and -1 sets all.
        branch(IF_GREATER, HIGHEST, 0, 1),
        refuse(libc::ENOSYS),
    ];
    program.extend(search(&leaves));
    program
}

/// Finds the leaf of the loaded number.
fn search(leaves: &[(u32, Vec<sock_filter>)]) -> Vec<sock_filter> {
    match leaves {
        [] => vec![allow()],
        [(_, leaf)] => leaf.clone(),
        _ => {
            let (low, high) = leaves.split_at(leaves.len() / 2);
            let (first_high, low, high) = (high[0].0, search(low), search(high));
            let mut program = vec![branch(IF_AT_LEAST, first_high, 0, 1), step(JUMP, length(&low))];
            program.extend(low);
            program.extend(high);
            program
        }
    }
}

/// Allows every number but one; for that one, the first rule that holds decides.
fn leaf(number: u32, rules: &[&Rule]) -> Vec<sock_filter> {
    let mut program = vec![branch(IF_EQUAL, number, 1, 0), allow()];
    for rule in rules {
        let mut left: u8 = rule.conditions.iter().map(|condition| steps(condition.test)).sum();
        for condition in &rule.conditions {
            left -= steps(condition.test);
            // The lower half, on a little-endian machine: what the kernel sees of an `int`.
            program.push(step(LOAD, ARGUMENTS + 8 * u32::from(condition.argument)));
            // One step more leads over the refusal, to the next rule.
            let (value, holds, fails) = match condition.test {
                Test::Is(value) => (value, 0, left + 1),
                Test::IsNot(value) => (value, left + 1, 0),
                Test::Masked { mask, value } => {
                    program.push(step(AND, mask));
                    (value, 0, left + 1)
                }
            };
            program.push(branch(IF_EQUAL, value, holds, fails));
        }
        program.push(refuse(rule.errno.raw_os_error()));
    }
    program.push(allow());
    program
}

/// Instructions of a test.
fn steps(test: Test) -> u8 {
    match test {
        Test::Is(_) | Test::IsNot(_) => 2,
        Test::Masked { .. } => 3,
    }
}

pub(super) fn step(code: u16, k: u32) -> sock_filter {
    sock_filter { code, jt: 0, jf: 0, k }
}

/// Skips `holds` or `fails` instructions.
pub(super) fn branch(code: u16, k: u32, holds: u8, fails: u8) -> sock_filter {
    sock_filter { code, jt: holds, jf: fails, k }
}

pub(super) fn allow() -> sock_filter {
    step(RETURN, libc::SECCOMP_RET_ALLOW)
}

pub(super) fn refuse(errno: i32) -> sock_filter {
    step(RETURN, libc::SECCOMP_RET_ERRNO | errno.cast_unsigned())
}

fn length(program: &[sock_filter]) -> u32 {
    u32::try_from(program.len()).expect("a program has at most 4096 instructions")
}
