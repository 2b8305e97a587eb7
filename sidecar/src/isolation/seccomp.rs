//! Seccomp (`seccomp(2)`): which system calls a guest cannot make, and what it is told instead.
//!
//! `rules` says what is refused, `program` turns that into one BPF program: a foreign architecture kills, a number
//! that no known kernel has (x32's included) is ENOSYS, and a binary search leads to the few calls that have rules.
//! One program rather than a stack, because what installing costs is per program. It is compiled once, in the zygote,
//! and installed once per VM, in init; every guest process inherits it.

mod notifying;
mod program;
mod rules;
mod syscalls;

#[cfg(test)]
mod interpreter;
#[cfg(test)]
mod tests;

use libc::sock_filter;

pub(crate) use notifying::{Asked, notifying};

use super::{At as _, Fault, Step};
use crate::sys::seccomp::install_filter;

/// An architecture the rules are known for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(test), expect(dead_code, reason = "a machine has one; the tests look at all"))]
enum Arch {
    X86_64,
    Aarch64,
}

impl Arch {
    /// The one this program is built for.
    #[cfg(target_arch = "x86_64")]
    const HERE: Self = Self::X86_64;
    #[cfg(target_arch = "aarch64")]
    const HERE: Self = Self::Aarch64;
}

/// The compiled programs.
#[derive(Debug)]
pub(crate) struct Programs {
    /// Where guest processes have uids of their own.
    own_uid: Vec<sock_filter>,
    /// Where they have init's: calls that name init are refused too.
    shared_uid: Vec<sock_filter>,
}

impl Programs {
    /// Compiles them for this machine.
    pub(crate) fn compile() -> Self {
        Self::compile_for(Arch::HERE)
    }

    fn compile_for(arch: Arch) -> Self {
        Self {
            own_uid: program::compile(&rules::of_all(), arch),
            shared_uid: program::compile(&[rules::of_all(), rules::about_init()].concat(), arch),
        }
    }

    /// The one for VMs without namespaces, of which each is compiled anew.
    fn compile_for_host(arch: Arch) -> Vec<sock_filter> {
        program::compile(&[rules::about_the_host(), rules::of_all(), rules::about_init()].concat(), arch)
    }

    /// Compiles and installs that one.
    pub(crate) fn install_for_host() -> Result<(), Fault> {
        install_filter(&Self::compile_for_host(Arch::HERE)).at(Step::Seccomp)
    }

    /// An outer filter, as container runtimes have one: refuses these calls, for this thread and whatever it starts.
    #[cfg(test)]
    pub(crate) fn refuse(numbers: impl IntoIterator<Item = u32>, errno: rustix::io::Errno) {
        rustix::thread::set_no_new_privs(true).expect("it is always allowed");
        let program = program::compile(&rules::about(numbers, errno), Arch::HERE);
        install_filter(&program).expect("it is a valid program");
    }

    /// Installs the right one, for this process and everything it starts.
    pub(crate) fn install(&self, shares_uid: bool) -> Result<(), Fault> {
        install_filter(self.program(shares_uid)).at(Step::Seccomp)
    }

    fn program(&self, shares_uid: bool) -> &[sock_filter] {
        if shares_uid { &self.shared_uid } else { &self.own_uid }
    }
}
