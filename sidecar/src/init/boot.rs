//! From a fresh clone to PID 1 of a VM: the order in which everything is built and then locked.

use std::os::fd::AsRawFd;

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::process::{DumpableBehavior, set_dumpable_behavior, setsid, umask};
use rustix::system::sethostname;
use rustix::thread::UnshareFlags;

use super::Arrival;
use super::terms::Terms;
use crate::isolation::base::Base;
use crate::isolation::plan::Plan;
use crate::isolation::report::Facts;
use crate::isolation::seccomp::Programs;
use crate::isolation::{
    At as _, Fault, Step, capabilities, cgroup, identity, network, rlimits, root_filesystem,
};
use crate::sys::clone::unshare;
use crate::sys::{SingleThreaded, descriptors, signals};
use crate::zygote::IGNORED;

/// Builds the VM around this process. `None`: the zygote gave up on it.
pub(super) fn boot<'a>(
    plan: &'a Plan,
    base: &Base,
    programs: &Programs,
    arrival: Arrival<'_>,
    proof: SingleThreaded,
) -> Result<Option<(Facts, Terms<'a>)>, Fault> {
    let Arrival { socket, go, entry, niceness } = arrival;
    if rustix::io::read(&go, &mut [0]).at(Step::IdMaps)? == 0 {
        return Ok(None);
    }
    drop(go);

    plan.reach(Step::Limits)?;
    entry.boot.into_iter().try_for_each(cgroup::enter).at_path(Step::Limits, "cgroup")?;
    // Only now, so that what is inside sees its own group as the root of all.
    unshare(proof, UnshareFlags::NEWCGROUP).at_path(Step::Limits, "cgroup namespace")?;
    let niceness = niceness.settle(plan.own_share).at_path(Step::Limits, "niceness")?;
    let terms = Terms { plan, entrance: entry.guest, niceness };

    plan.reach(Step::Identity)?;
    identity::become_id(plan.id_maps.init_id(plan.guest), plan.id_maps).at(Step::Identity)?;
    setsid().at_path(Step::Identity, "session")?;
    // All others are what they were at first.
    IGNORED.into_iter().for_each(signals::restore);

    plan.reach(Step::Descriptors)?;
    let entrance = terms.entrance.as_ref().map_or(socket.as_raw_fd(), AsRawFd::as_raw_fd);
    descriptors::close_all_but([socket.as_raw_fd(), entrance]).at(Step::Descriptors)?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable).at_path(Step::Descriptors, "dumpable")?;

    let built = root_filesystem::build(plan, base)?;
    use_the_vms_null()?;

    plan.reach(Step::Hostname)?;
    sethostname(plan.hostname.as_bytes()).at_path(Step::Hostname, &plan.hostname)?;
    plan.reach(Step::Loopback)?;
    network::bring_loopback_up()?;

    plan.reach(Step::Rlimits)?;
    rlimits::limit_vm(&plan.limits)?;
    plan.reach(Step::Capabilities)?;
    capabilities::lock_in(plan.guest)?;
    plan.reach(Step::Seccomp)?;
    programs.install(plan.shares_uid())?;

    // Zero until here, so that what is built gets the modes it is given; guests expect the usual one.
    umask(Mode::WGRP | Mode::WOTH);
    plan.reach(Step::Report)?;
    Ok(Some((Facts::read_back(plan, &built)?, terms)))
}

/// Replaces the host's `/dev/null` on the standard streams, which guest processes may inherit.
fn use_the_vms_null() -> Result<(), Fault> {
    let null = openat(CWD, "/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
        .at_path(Step::Devices, "/dev/null")?;
    for number in 0..3 {
        descriptors::put_at(&null, number).at_path(Step::Devices, "/dev/null")?;
    }
    Ok(())
}
