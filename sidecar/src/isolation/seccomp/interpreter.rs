//! A classic BPF interpreter, as far as seccomp programs need one (`linux/filter.h`), for the tests.

use libc::sock_filter;

/// What a filter looks at: `struct seccomp_data`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Call {
    pub(super) arch: u32,
    pub(super) number: u32,
    pub(super) arguments: [u64; 6],
}

/// What happens to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Kill,
    Errno(i32),
    Allow,
}

impl Call {
    fn word(&self, offset: u32) -> u32 {
        match offset {
            0 => self.number,
            4 => self.arch,
            16.. => {
                let argument = self.arguments[(offset as usize - 16) / 8];
                let half = if offset.is_multiple_of(8) { argument & 0xffff_ffff } else { argument >> 32 };
                u32::try_from(half).expect("half of it")
            }
            _ => panic!("no rule looks at the instruction pointer"),
        }
    }
}

/// What a program says to a call.
pub(super) fn verdict(program: &[sock_filter], call: &Call) -> Verdict {
    let action = run(program, call);
    match action & libc::SECCOMP_RET_ACTION_FULL {
        libc::SECCOMP_RET_KILL_PROCESS => Verdict::Kill,
        libc::SECCOMP_RET_ERRNO => Verdict::Errno((action & libc::SECCOMP_RET_DATA).cast_signed()),
        libc::SECCOMP_RET_ALLOW => Verdict::Allow,
        other => panic!("no rule answers {other:#x}"),
    }
}

fn run(program: &[sock_filter], call: &Call) -> u32 {
    let (mut at, mut accumulator) = (0, 0);
    loop {
        let step = &program[at];
        at += 1;
        let branch = |holds| usize::from(if holds { step.jt } else { step.jf });
        match step.code {
            0x20 => accumulator = call.word(step.k),
            0x54 => accumulator &= step.k,
            0x05 => at += step.k as usize,
            0x15 => at += branch(accumulator == step.k),
            0x25 => at += branch(accumulator > step.k),
            0x35 => at += branch(accumulator >= step.k),
            0x06 => return step.k,
            other => panic!("unknown instruction {other:#x}"),
        }
    }
}
