//! Seccomp (`seccomp(2)`): which system calls a guest cannot make, and what it is told instead.
//!
//! One program per errno, stacked; of all their answers the kernel takes the strictest. In front of them a preamble:
//! a foreign architecture kills, a number that no known kernel has (x32's included) is ENOSYS. The programs are
//! compiled once, in the zygote, and installed once per VM, in init; every guest process inherits them.

mod preamble;
mod rules;
mod syscalls;

#[cfg(test)]
mod interpreter;
#[cfg(test)]
mod tests;

use rustix::io::Errno;
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch};

use super::{At as _, Fault, Step};
use crate::sys::seccomp::install_filter;

/// The architecture this program is built for.
#[cfg(target_arch = "x86_64")]
const HERE: TargetArch = TargetArch::x86_64;
#[cfg(target_arch = "aarch64")]
const HERE: TargetArch = TargetArch::aarch64;

/// The compiled programs.
#[derive(Debug)]
pub(crate) struct Programs {
    /// For every VM.
    all: Vec<BpfProgram>,
    /// Also where guest processes have init's uid.
    shared_uid: BpfProgram,
}

impl Programs {
    /// Compiles them for this machine.
    pub(crate) fn compile() -> Result<Self, Fault> {
        // Cannot fail for rules that are constants; a unit test compiles them for every architecture.
        compile(HERE).map_err(|()| Fault::new(Step::SeccompProgram, Errno::INVAL))
    }

    /// Installs them, for this process and everything it starts. `shares_uid`: guest processes have init's uid, so
    /// calls that name init are refused too.
    pub(crate) fn install(&self, shares_uid: bool) -> Result<(), Fault> {
        for program in self.stack(shares_uid) {
            install_filter(program).at(Step::Seccomp)?;
        }
        Ok(())
    }

    fn stack(&self, shares_uid: bool) -> impl Iterator<Item = &BpfProgram> {
        self.all.iter().chain(shares_uid.then_some(&self.shared_uid))
    }
}

fn compile(arch: TargetArch) -> Result<Programs, ()> {
    let mut all = vec![preamble::program(arch)];
    for (errno, rules) in [
        (Errno::PERM, rules::not_permitted as fn(TargetArch) -> rules::Rules),
        (Errno::NOSYS, rules::not_there),
        (Errno::AFNOSUPPORT, rules::address_families),
        (Errno::PROTONOSUPPORT, rules::protocols),
    ] {
        all.push(refuse(errno, rules(arch), arch)?);
    }
    Ok(Programs { all, shared_uid: refuse(Errno::PERM, rules::about_init(arch), arch)? })
}

fn refuse(errno: Errno, rules: rules::Rules, arch: TargetArch) -> Result<BpfProgram, ()> {
    let action = SeccompAction::Errno(errno.raw_os_error().unsigned_abs());
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, action, arch).map_err(drop)?;
    filter.try_into().map_err(drop)
}
