//! Hosts on which no sandbox can be had: each says which step failed, why, and what would help; weaker levels can still be
//! had, and nothing is left behind.

use std::collections::BTreeSet;

use agentvm_wire::id::VmId;
use agentvm_wire::vm::{Isolation, VmConfig};
use rustix::io::Errno;
use rustix::process::geteuid;
use serde_json::Value;

use super::harness::{Host, Vm};
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
    let calls =
        [libc::SYS_mount, libc::SYS_open_tree, libc::SYS_move_mount, libc::SYS_fsopen, libc::SYS_umount2];
    let message = under_a_filter(calls.map(|number| number.try_into().unwrap()), Errno::PERM, || {
        let host = Host::new();
        has_no_sandbox(&host, Step::MountNamespace, libc::EPERM);
        host.zygote.sandbox().expect_err("there is none").to_string()
    });
    assert!(message.contains("--security-opt seccomp=unconfined"), "{message}");
}

/// The filter is for good, so what runs under it gets a thread of its own.
fn under_a_filter<T: Send + 'static>(
    refused: impl IntoIterator<Item = u32> + Send + 'static,
    errno: Errno,
    run: impl FnOnce() -> T + Send + 'static,
) -> T {
    let filtered = std::thread::spawn(move || {
        Programs::refuse(refused, errno);
        run()
    });
    filtered.join().expect("it is as expected")
}

/// The profile for Kubernetes, `docs/install/seccomp.json`: what it allows by name.
fn profile() -> BTreeSet<String> {
    let profile: Value = serde_json::from_str(include_str!("../../../docs/install/seccomp.json")).unwrap();
    assert_eq!(
        (&profile["defaultAction"], &profile["defaultErrnoRet"]),
        (&"SCMP_ACT_ERRNO".into(), &libc::ENOSYS.into())
    );
    let groups = profile["syscalls"].as_array().unwrap();
    assert!(groups.iter().all(|group| group["action"] == "SCMP_ACT_ALLOW"));
    let names = groups.iter().flat_map(|group| group["names"].as_array().unwrap());
    names.map(|name| name.as_str().unwrap().to_owned()).collect()
}

/// What sidecar, zygote, supervisor and init ask of the kernel beyond what any program does (`strace -f` of the doctor).
const NEEDED: [&str; 43] = [
    "capget",
    "capset",
    "chroot",
    "clone",
    "clone3",
    "close_range",
    "epoll_pwait",
    "epoll_wait",
    "execve",
    "flock",
    "fsconfig",
    "fsmount",
    "fsopen",
    "landlock_add_rule",
    "landlock_create_ruleset",
    "landlock_restrict_self",
    "memfd_create",
    "mkdirat",
    "mount",
    "mount_setattr",
    "move_mount",
    "open_tree",
    "openat2",
    "pidfd_open",
    "pidfd_send_signal",
    "pivot_root",
    "prctl",
    "prlimit64",
    "recvmsg",
    "seccomp",
    "sendmsg",
    "setgroups",
    "sethostname",
    "setpriority",
    "setresgid",
    "setresuid",
    "setsid",
    "signalfd4",
    "socketpair",
    "symlinkat",
    "umount2",
    "unshare",
    "waitid",
];

/// What no pod of ours may ask of its node.
const FORBIDDEN: [&str; 16] = [
    "acct",
    "add_key",
    "bpf",
    "delete_module",
    "finit_module",
    "init_module",
    "io_uring_setup",
    "kexec_load",
    "keyctl",
    "open_by_handle_at",
    "perf_event_open",
    "reboot",
    "request_key",
    "setns",
    "swapon",
    "userfaultfd",
];

#[test]
fn the_profile_for_kubernetes_allows_what_the_sidecar_needs_and_no_more_of_the_kernel() {
    let allowed = profile();
    let missing: Vec<_> = NEEDED.iter().filter(|name| !allowed.contains(**name)).collect();
    assert!(missing.is_empty(), "{missing:?}");
    let too_many: Vec<_> = FORBIDDEN.iter().filter(|name| allowed.contains(**name)).collect();
    assert!(too_many.is_empty(), "{too_many:?}");
}

#[test]
fn under_the_profile_for_kubernetes_every_level_can_be_had() {
    // Numbers by name, as the C library's headers have them: newer calls than theirs are not looked at.
    let Ok(header) = std::fs::read_to_string("/usr/include/x86_64-linux-gnu/asm/unistd_64.h") else {
        return println!("skipped: the kernel's header with system call numbers is not installed");
    };
    let allowed = profile();
    let calls = header.lines().filter_map(|line| line.strip_prefix("#define __NR_")?.split_once(' '));
    let refused: Vec<u32> = calls
        .filter(|(name, _)| !allowed.contains(*name))
        .map(|(_, number)| number.trim().parse().unwrap())
        .collect();
    assert!(refused.len() > FORBIDDEN.len(), "{refused:?}");
    under_a_filter(refused, Errno::NOSYS, || {
        for isolation in [Isolation::Sandbox, Isolation::Confined, Isolation::None] {
            let mut vm = Vm::with(&VmConfig { isolation, ..VmConfig::default() });
            assert_eq!(vm.sh("echo in | cat").output, "in\n", "{isolation:?}");
        }
    });
}
