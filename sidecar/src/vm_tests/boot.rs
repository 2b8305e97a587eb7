//! Creating VMs: what the report says, how creation fails, and that nothing is left.

use agentvm_wire::id::VmId;
use agentvm_wire::vm::{Isolation, VmConfig, VmLimits, WritableLayer};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, geteuid, kill_process};

use super::harness::{Host, Vm, children_of, root};
use crate::init::Event;
use crate::isolation::Step;

/// Every step a VM's creation reaches, in order.
const STEPS: [Step; 21] = [
    Step::Namespaces,
    Step::IdMaps,
    Step::Limits,
    Step::Identity,
    Step::Descriptors,
    Step::RootTmpfs,
    Step::Folders,
    Step::HostTools,
    Step::Etc,
    Step::Devices,
    Step::Proc,
    Step::Sysctls,
    Step::Masks,
    Step::Cwd,
    Step::PivotRoot,
    Step::Hostname,
    Step::Loopback,
    Step::Rlimits,
    Step::Capabilities,
    Step::Seccomp,
    Step::Report,
];

#[test]
fn the_report_is_what_is_seen_inside() {
    let mut vm = Vm::new();
    let report = vm.booted.report.clone();
    let namespaces = report.namespaces.clone().unwrap();
    let inside = |vm: &mut Vm, name: &str| {
        let link = vm.sh(&format!("readlink /proc/self/ns/{name}")).output;
        link.trim().trim_start_matches(&format!("{name}:[")).trim_end_matches(']').to_owned()
    };
    let own = |name: &str| std::fs::read_link(format!("/proc/self/ns/{name}")).unwrap();
    for (name, reported) in [
        ("user", &namespaces.user),
        ("pid", &namespaces.pid),
        ("mnt", &namespaces.mnt),
        ("net", &namespaces.net),
        ("ipc", &namespaces.ipc),
        ("cgroup", &namespaces.cgroup),
    ] {
        assert_eq!(&inside(&mut vm, name), reported, "{name}");
        assert!(!own(name).to_string_lossy().contains(reported), "{name} is not the host's");
    }
    assert_ne!(inside(&mut vm, "uts"), namespaces.uts, "each process has a UTS namespace of its own");
    assert!(report.no_new_privs);
    assert_eq!(report.seccomp.mode, 2);
    assert!(report.guest.capabilities.is_empty());
    let map = report.uid_map[0];
    if geteuid().is_root() {
        assert_eq!((map.inside, map.count), (0, 65_536));
        assert!(map.outside >= 1 << 30);
        assert_eq!(vm.booted.guest_ids, Some((map.outside + 1000, map.outside + 1000)));
    } else {
        assert_eq!((map.inside, map.outside, map.count), (1000, geteuid().as_raw(), 1));
        assert_eq!(vm.booted.guest_ids, None);
    }
    let limit = |name: &str| report.limits.iter().find(|limit| limit.name == name).unwrap().effective;
    assert_eq!(limit("pids").unwrap().to_string(), vm.sh("bash -c 'ulimit -Hu'").output.trim());
    assert_eq!(limit("open_files").unwrap().to_string(), vm.sh("ulimit -Hn").output.trim());
    assert_eq!(limit("pid_max").unwrap().to_string(), vm.sh("cat /proc/sys/kernel/pid_max").output.trim());
}

#[test]
fn root_of_a_vm_holds_nine_capabilities() {
    let mut vm = Vm::with(&root());
    assert_eq!(
        vm.booted.report.guest.capabilities.join(" "),
        "CHOWN DAC_OVERRIDE FOWNER FSETID KILL SETGID SETUID SETPCAP NET_BIND_SERVICE"
    );
    let expected = "00000000000005fb\n";
    for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        let seen = vm.sh(&format!("sed -n 's/^{set}:\\t//p' /proc/self/status")).output;
        assert_eq!(seen, expected, "{set}");
    }
}

#[test]
fn two_vms_have_nothing_in_common() {
    let host = Host::new();
    let (first, second) = (host.boot(&VmConfig::default()), host.boot(&VmConfig::default()));
    let (one, two) = (first.report.namespaces.as_ref().unwrap(), second.report.namespaces.as_ref().unwrap());
    assert!(one.user != two.user && one.pid != two.pid && one.mnt != two.mnt);
    assert!(one.net != two.net && one.uts != two.uts && one.ipc != two.ipc && one.cgroup != two.cgroup);
    if geteuid().is_root() {
        assert_ne!(first.report.uid_map, second.report.uid_map);
    }
}

#[test]
fn a_step_that_fails_is_named_and_undone() {
    let host = Host::new();
    for step in STEPS {
        let created = host.run(host.zygote.create_failing_vm(&VmConfig::default(), step, Errno::NFILE));
        let error = created.expect_err("the step fails");
        assert_eq!((error.step(), error.errno()), (step, libc::ENFILE), "{error}");
        host.wait_until_childless();
    }
    assert_eq!(host.boot(&VmConfig::default()).report.seccomp.mode, 2, "and the zygote goes on");
}

#[test]
fn a_dropped_creation_leaves_no_vm() {
    let host = Host::new();
    for polls in 0..6 {
        host.run(async {
            let config = VmConfig::default();
            let mut creation = Box::pin(host.zygote.create_vm(VmId::random(), &config));
            for _ in 0..polls {
                if futures_util::poll!(&mut creation).is_ready() {
                    break;
                }
                tokio::task::yield_now().await;
            }
        });
        host.wait_until_childless();
    }
}

#[test]
fn dropping_both_halves_ends_the_vm() {
    let host = Host::new();
    let booted = host.boot(&VmConfig::default());
    assert_eq!(children_of(host.zygote.pid()).len(), 1);
    drop(booted);
    host.wait_until_childless();
}

#[test]
fn a_vm_outlives_its_zygote() {
    let host = Host::new();
    let mut booted = host.boot(&VmConfig::default());
    let runtime = host.into_runtime();
    booted.commands.end();
    assert_eq!(runtime.block_on(booted.events.next()), Event::Ended);
}

#[test]
fn a_zygote_that_died_is_replaced_and_its_vms_live_on() {
    let mut vm = Vm::new();
    let dead = vm.zygote().pid();
    kill_process(Pid::from_raw(dead.cast_signed()).unwrap(), Signal::KILL).unwrap();
    assert_eq!(vm.sh("echo alive").output, "alive\n");
    let second = vm.run(vm.zygote().create_vm(VmId::random(), &VmConfig::default())).unwrap();
    assert_ne!(vm.zygote().pid(), dead);
    assert_ne!(second.report.namespaces, vm.booted.report.namespaces);
    drop(second);
    vm.wait_until_childless();
}

#[test]
fn nonsense_is_refused_with_the_field_it_is_in() {
    let host = Host::new();
    let refused = |config: VmConfig| {
        let error = host.run(host.zygote.create_vm(VmId::random(), &config)).expect_err("it is refused");
        (error.step(), error.path().map(str::to_owned))
    };
    for hostname in ["", "a_b", "ü", &"x".repeat(65)] {
        let config = VmConfig { hostname: Some(hostname.into()), ..VmConfig::default() };
        assert_eq!(refused(config), (Step::Config, Some("hostname".into())), "{hostname}");
    }
    let no_disk = WritableLayer { size_bytes: Some(0), inodes: None };
    let config = VmConfig { writable_layer: no_disk, ..VmConfig::default() };
    assert_eq!(refused(config), (Step::Config, Some("writable_layer.size_bytes".into())));
    let config = VmConfig { cwd: Some("relative".into()), ..VmConfig::default() };
    assert_eq!(refused(config), (Step::Config, Some("cwd".into())));
    let config = VmConfig { cwd: Some("/usr/not-there".into()), ..VmConfig::default() };
    assert_eq!(refused(config).0, Step::Cwd);
    let config = VmConfig { cwd: Some("/etc/passwd".into()), ..VmConfig::default() };
    assert_eq!(refused(config).0, Step::Cwd);
}

#[test]
fn limits_are_lowered_as_asked_and_clamped_to_the_sidecars() {
    let limits = VmLimits { pids: Some(50), open_files: Some(u64::MAX), ..VmLimits::default() };
    let mut vm = Vm::with(&VmConfig { limits, ..VmConfig::default() });
    assert_eq!(vm.sh("bash -c 'ulimit -u'").output, "50\n");
    let report = vm.booted.report.limits.iter().find(|limit| limit.name == "open_files").unwrap().clone();
    assert_eq!(report.requested, Some(u64::MAX));
    assert_eq!(format!("{}\n", report.effective.unwrap()), vm.sh("ulimit -n").output);
}

/// Every step that the creation of a VM without namespaces reaches, in order.
const STEPS_ON_HOST: [Step; 11] = [
    Step::Supervisor,
    Step::Limits,
    Step::Identity,
    Step::Descriptors,
    Step::PrivateFolder,
    Step::Cwd,
    Step::Rlimits,
    Step::Capabilities,
    Step::Landlock,
    Step::Seccomp,
    Step::Report,
];

#[test]
fn a_step_that_fails_without_namespaces_is_named_and_undone() {
    let host = Host::new();
    let config = VmConfig { isolation: Isolation::Confined, ..VmConfig::default() };
    for step in STEPS_ON_HOST {
        let created = host.run(host.zygote.create_failing_vm(&config, step, Errno::NFILE));
        let error = created.expect_err("the step fails");
        assert_eq!((error.step(), error.errno()), (step, libc::ENFILE), "{error}");
        host.wait_until_folderless();
    }
    let booted = host.boot(&config);
    assert!(booted.report.landlock.is_some());
    drop(booted);
    host.wait_until_folderless();
}
