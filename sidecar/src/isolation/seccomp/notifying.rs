//! A program that refuses nothing, but has a listener asked about some calls: what observation is built on. A foreign
//! architecture goes by unseen.

use libc::sock_filter;

use super::Arch;
use super::program::{
    ARCH, ARGUMENTS, IF_EQUAL, LOAD, NUMBER, RETURN, allow, audit_arch, branch, refuse, step,
};

/// A call that is asked about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Asked {
    /// Its number.
    pub number: libc::c_long,
    /// Only if this argument, a pointer, is not null.
    pub pointer: Option<u8>,
}

/// Compiles it for this machine; `absent` calls are answered as by a kernel that lacks them.
pub(crate) fn notifying(asked: &[Asked], absent: &[libc::c_long]) -> Vec<sock_filter> {
    let mut program =
        vec![step(LOAD, ARCH), branch(IF_EQUAL, audit_arch(Arch::HERE), 1, 0), allow(), step(LOAD, NUMBER)];
    for &number in absent {
        program.extend([branch(IF_EQUAL, number_of(number), 0, 1), refuse(libc::ENOSYS)]);
    }
    let ask = step(RETURN, libc::SECCOMP_RET_USER_NOTIF);
    for &Asked { number, pointer } in asked {
        let number = number_of(number);
        match pointer {
            None => program.extend([branch(IF_EQUAL, number, 0, 1), ask]),
            // Its lower half says enough: no memory of a program begins at 4 GiB sharp, or not for long.
            Some(argument) => program.extend([
                branch(IF_EQUAL, number, 0, 4),
                step(LOAD, ARGUMENTS + 8 * u32::from(argument)),
                branch(IF_EQUAL, 0, 0, 1),
                allow(),
                ask,
            ]),
        }
    }
    program.push(allow());
    program
}

fn number_of(number: libc::c_long) -> u32 {
    u32::try_from(number).expect("system calls are numbered from 0 on")
}
