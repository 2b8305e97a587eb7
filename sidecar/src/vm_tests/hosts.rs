//! Hosts on which no sandbox can be had: each says which step failed, why, and what would help; weaker levels can still be
//! had, and nothing is left behind.

use agentvm_wire::id::VmId;
use agentvm_wire::vm::{Isolation, VmConfig};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::harness::Host;
use crate::isolation::Step;
use crate::isolation::seccomp::Programs;
use crate::zygote::Zygote;

/// Expects that no sandbox can be had, and that a confined VM can.
fn has_no_sandbox(host: &Host, step: Step, errno: i32) {
    let created = host.run(host.zygote.create_vm(VmId::random(), &VmConfig::default()));
    let error = created.expect_err("there can be no sandbox");
    assert_eq!((error.step(), error.errno()), (step, errno), "{error}");
    let unavailable = host.zygote.sandbox().expect_err("it says so before, too").to_string();
    assert!(unavailable.contains(step.name()), "{unavailable}");
    let config = VmConfig { isolation: Isolation::Confined, ..VmConfig::default() };
    drop(host.boot(&config));
    host.wait_until_folderless();
}

#[test]
fn a_zygote_that_fails_at_a_step_leaves_the_weaker_levels() {
    let outer = if geteuid().is_root() { Step::Groups } else { Step::UserNamespace };
    for step in [Step::Kernel, outer, Step::MountNamespace, Step::Base] {
        let host = Host::of(Zygote::start_failing(step, Errno::NFILE));
        has_no_sandbox(&host, step, libc::ENFILE);
    }
}

#[test]
fn under_a_filter_that_refuses_mounts_no_sandbox_can_be_had() {
    // The filter is for good, so it gets a thread of its own.
    let refused = std::thread::spawn(|| {
        Programs::refuse_mounts();
        let host = Host::new();
        has_no_sandbox(&host, Step::MountNamespace, libc::EPERM);
        host.zygote.sandbox().expect_err("there is none").to_string()
    });
    let message = refused.join().expect("it is as expected");
    assert!(message.contains("--security-opt seccomp=unconfined"), "{message}");
}
