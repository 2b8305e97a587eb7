//! From a fresh clone to PID 1 of a VM: the order in which everything is built and then locked.

use std::fs::create_dir_all;
use std::os::fd::{AsRawFd, OwnedFd};

use agentvm_wire::vm::Isolation;
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::process::{DumpableBehavior, getpid, set_child_subreaper, set_dumpable_behavior, setsid, umask};
use rustix::system::sethostname;
use rustix::thread::UnshareFlags;

use super::Arrival;
use super::terms::Terms;
use crate::isolation::base::Base;
use crate::isolation::plan::Plan;
use crate::isolation::private_folder::PrivateFolder;
use crate::isolation::report::Facts;
use crate::isolation::seccomp::Programs;
use crate::isolation::{
    At as _, Fault, Step, capabilities, cgroup, identity, landlock, network, rlimits, root_filesystem,
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
    if let Some(go) = go
        && rustix::io::read(&go, &mut [0]).at(Step::IdMaps)? == 0
    {
        return Ok(None);
    }

    enter_groups(plan, entry.boot)?;
    // Only now, so that what is inside sees its own group as the root of all.
    unshare(proof, UnshareFlags::NEWCGROUP).at_path(Step::Limits, "cgroup namespace")?;
    let niceness = niceness.settle(plan.own_share).at_path(Step::Limits, "niceness")?;
    let terms = Terms { plan, entrance: entry.guest, niceness };

    plan.reach(Step::Identity)?;
    identity::become_id(plan.id_maps.init_id(plan.guest), plan.id_maps).at(Step::Identity)?;
    setsid().at_path(Step::Identity, "session")?;
    // All others are what they were at first.
    IGNORED.into_iter().for_each(signals::restore);

    keep_only(socket, &terms)?;

    let built = root_filesystem::build(plan, base)?;
    use_the_vms_null()?;

    plan.reach(Step::Hostname)?;
    sethostname(plan.hostname.as_bytes()).at_path(Step::Hostname, &plan.hostname)?;
    plan.reach(Step::Loopback)?;
    network::bring_loopback_up()?;

    plan.reach(Step::Rlimits)?;
    rlimits::limit_vm(&plan.limits)?;
    plan.reach(Step::Capabilities)?;
    capabilities::lock_in(plan)?;
    plan.reach(Step::Seccomp)?;
    programs.install(plan.shares_uid())?;

    // Zero until here, so that what is built gets the modes it is given; guests expect the usual one.
    umask(Mode::WGRP | Mode::WOTH);
    plan.reach(Step::Report)?;
    Ok(Some((Facts::of_sandbox(plan, &built)?, terms)))
}

/// The same without namespaces: there is no root to build, and nothing is left behind but what Landlock and seccomp refuse.
pub(super) fn boot_on_host<'a>(
    plan: &'a Plan,
    folder: &PrivateFolder,
    arrival: Arrival<'_>,
) -> Result<(Facts, Terms<'a>), Fault> {
    let Arrival { socket, entry, niceness, .. } = arrival;
    enter_groups(plan, entry.boot)?;
    let niceness = niceness.settle(plan.own_share).at_path(Step::Limits, "niceness")?;
    let terms = Terms { plan, entrance: entry.guest, niceness };

    plan.reach(Step::Identity)?;
    setsid().at_path(Step::Identity, "session")?;
    set_child_subreaper(Some(getpid())).at_path(Step::Identity, "subreaper")?;
    IGNORED.into_iter().for_each(signals::restore);

    keep_only(socket, &terms)?;

    plan.reach(Step::PrivateFolder)?;
    folder.make(plan.guest_id())?;
    plan.reach(Step::Cwd)?;
    umask(Mode::WGRP | Mode::WOTH);
    create_dir_all(&plan.cwd).at_path(Step::Cwd, &plan.cwd)?;

    plan.reach(Step::Rlimits)?;
    rlimits::limit_vm(&plan.limits)?;
    let mut landlock_abi = None;
    if plan.isolation == Isolation::Confined {
        plan.reach(Step::Capabilities)?;
        capabilities::gain_none()?;
        plan.reach(Step::Landlock)?;
        landlock_abi = Some(landlock::restrict(folder)?);
        plan.reach(Step::Seccomp)?;
        Programs::install_for_host()?;
    }
    plan.reach(Step::Report)?;
    Ok((Facts::of_host(plan, landlock_abi)?, terms))
}

fn enter_groups(plan: &Plan, groups: impl IntoIterator<Item = OwnedFd>) -> Result<(), Fault> {
    plan.reach(Step::Limits)?;
    groups.into_iter().try_for_each(cgroup::enter).at_path(Step::Limits, "cgroup")
}

/// Keeps no descriptor but the sidecar's socket and what guests enter their group by, and lets nobody look in.
fn keep_only(socket: &OwnedFd, terms: &Terms<'_>) -> Result<(), Fault> {
    terms.plan.reach(Step::Descriptors)?;
    let entrance = terms.entrance.as_ref().map_or(socket.as_raw_fd(), AsRawFd::as_raw_fd);
    descriptors::close_all_but([socket.as_raw_fd(), entrance]).at(Step::Descriptors)?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable).at_path(Step::Descriptors, "dumpable")
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
