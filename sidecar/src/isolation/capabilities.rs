//! Capabilities (`capabilities(7)`): what init keeps of its VM's user namespace, and what a guest process gets.

use agentvm_wire::vm::Isolation;
use rustix::io::Errno;
use rustix::thread::{
    CapabilitiesSecureBits, CapabilitySet, CapabilitySets, capabilities, configure_capability_in_ambient_set,
    remove_capability_from_bounding_set, set_capabilities, set_capabilities_secure_bits, set_no_new_privs,
};

use super::plan::Plan;
use super::{At as _, Fault, Step};

/// What init keeps: switching users, dropping capabilities, signalling, reading `/proc` of the guest, UTS namespaces.
const INIT: CapabilitySet = CapabilitySet::SETUID
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::SETPCAP)
    .union(CapabilitySet::KILL)
    .union(CapabilitySet::SYS_PTRACE)
    .union(CapabilitySet::SYS_ADMIN);

/// What uid 0 of the VM holds when asked for; never anything that reaches the kernel's own settings.
const GUEST_ROOT: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::KILL)
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::SETUID)
    .union(CapabilitySet::SETPCAP)
    .union(CapabilitySet::NET_BIND_SERVICE);

/// uid 0 means nothing at exec, and nobody may change that again.
const SECURE_BITS: CapabilitiesSecureBits = CapabilitiesSecureBits::NO_ROOT
    .union(CapabilitiesSecureBits::NO_ROOT_LOCKED)
    .union(CapabilitiesSecureBits::NO_SETUID_FIXUP_LOCKED)
    .union(CapabilitiesSecureBits::KEEP_CAPS_LOCKED);

/// What a guest process holds: where nothing is kept from it, what the sidecar does.
pub(crate) fn of_guest(plan: &Plan) -> CapabilitySet {
    match plan.isolation {
        Isolation::None => capabilities(None).map_or(CapabilitySet::empty(), |held| held.effective),
        _ if plan.guest.root => GUEST_ROOT,
        _ => CapabilitySet::empty(),
    }
}

/// Names of a set in the kernel's order, without `CAP_`.
pub(crate) fn names(set: CapabilitySet) -> Vec<String> {
    set.iter_names().map(|(name, _)| name.to_owned()).collect()
}

/// Gives up, for init and everything after it, whatever the VM does not need. Ambient capabilities are raised here
/// once: init never execs, and each guest process inherits them.
pub(crate) fn lock_in(plan: &Plan) -> Result<(), Fault> {
    let of_guest = of_guest(plan);
    set_no_new_privs(true).at_path(Step::Capabilities, "no_new_privs")?;
    set_capabilities_secure_bits(SECURE_BITS).at_path(Step::Capabilities, "securebits")?;
    for number in 0..u64::BITS {
        let capability = CapabilitySet::from_bits_retain(1 << number);
        if of_guest.contains(capability) {
            continue;
        }
        match remove_capability_from_bounding_set(capability) {
            Ok(()) => {}
            // Past the last capability this kernel knows.
            Err(Errno::INVAL) => break,
            Err(errno) => return Err(Fault::about(Step::Capabilities, errno, "bounding set")),
        }
    }
    set_capabilities(
        None,
        CapabilitySets { effective: INIT, permitted: INIT | of_guest, inheritable: of_guest },
    )
    .at_path(Step::Capabilities, "init's own set")?;
    for (name, capability) in of_guest.iter_names() {
        configure_capability_in_ambient_set(capability, true).at_path(Step::Capabilities, name)?;
    }
    Ok(())
}

/// Keeps what is started from gaining rights by a file's mode: all there is to lock in without a user namespace.
pub(crate) fn gain_none() -> Result<(), Fault> {
    set_no_new_privs(true).at_path(Step::Capabilities, "no_new_privs")
}

/// Leaves a process that is about to exec with exactly what a guest may hold.
pub(crate) fn become_guest(plan: &Plan) -> rustix::io::Result<()> {
    let set = of_guest(plan);
    if plan.isolation == Isolation::None {
        return Ok(());
    }
    set_capabilities(None, CapabilitySets { effective: set, permitted: set, inheritable: set })
}
