//! What a VM may use as a whole, and what each of its processes may. Where this host has nothing that enforces a limit,
//! the test is that it is refused.

use agentvm_wire::vm::{LimitReport, VmConfig, VmLimits};

use super::harness::{Host, Vm, root};
use crate::isolation::Step;

fn with(limits: VmLimits) -> VmConfig {
    VmConfig { limits, ..VmConfig::default() }
}

fn limit(vm: &Vm, name: &str) -> LimitReport {
    vm.booted.report.limits.iter().find(|limit| limit.name == name).unwrap().clone()
}

/// A VM with a limit that takes a controller; `None` where this host has no such, and it was refused as it should be.
fn limited(name: &str, config: &VmConfig) -> Option<Vm> {
    let host = Host::new();
    let missing = host.boot(&VmConfig::default()).report.limits;
    let missing = missing.into_iter().find(|limit| limit.name == name).unwrap().missing;
    let Some(why) = missing else { return Some(Vm::with(config)) };
    let created = host.run(host.zygote.create_vm(agentvm_wire::id::VmId::random(), config));
    let refused = created.expect_err("it is refused");
    assert_eq!((refused.step(), refused.errno()), (Step::Limits, libc::EOPNOTSUPP), "{refused}");
    assert_eq!(refused.path(), Some(format!("limits.{name}").as_str()));
    println!("skipped: {name} cannot be enforced here: {why}");
    None
}

#[test]
fn a_guest_that_takes_too_much_memory_is_ended_and_nothing_else() {
    let config = with(VmLimits { memory_bytes: Some(64 << 20), ..VmLimits::default() });
    let Some(mut vm) = limited("memory_bytes", &config) else { return };
    let report = limit(&vm, "memory_bytes");
    assert_eq!((report.effective, report.enforced_by.as_str()), (Some(64 << 20), "cgroup"));
    let sleeper = vm.start("sleep", &["1000"]);
    // `tail` keeps all of a line until its end.
    assert_eq!(vm.sh("tail /dev/zero").code, Some(137));
    assert_eq!(vm.sh("echo alive").output, "alive\n");
    assert_eq!(vm.list().unwrap().iter().filter(|row| row.process == Some(sleeper)).count(), 1);
    assert!(
        vm.booted
            .report
            .limits
            .iter()
            .any(|limit| limit.name == "disk_bytes" && limit.effective <= Some(32 << 20))
    );
    let full = vm.sh("head -c 40000000 /dev/zero > /tmp/big");
    assert!(full.output.contains("No space left"), "{full:?}");
    assert_eq!(vm.sh("echo alive").output, "alive\n");
}

#[test]
fn a_guest_computes_no_longer_than_its_share() {
    let config = with(VmLimits { cpu_millicores: Some(200), ..VmLimits::default() });
    let Some(mut vm) = limited("cpu_millicores", &config) else { return };
    assert_eq!(limit(&vm, "cpu_millicores").effective, Some(200));
    let spin = "timeout 1 sh -c 'while :; do :; done' & timeout 1 sh -c 'while :; do :; done'; wait; times";
    let begun = std::time::Instant::now();
    let times = vm.sh(spin).output;
    let allowed = begun.elapsed().as_secs_f64() * 0.2 + 0.15;
    // The second line of `times` is what children have used: minutes and seconds, as user and in the kernel.
    let children = times.lines().nth(1).unwrap();
    let used: f64 =
        children.split_whitespace().map(|time| time[2..time.len() - 1].parse::<f64>().unwrap()).sum();
    assert!(used < allowed, "{times}: {used} s of {allowed} s");
}

#[test]
fn the_limit_of_processes_holds_for_the_whole_vm() {
    let config = VmConfig { limits: VmLimits { pids: Some(30), ..VmLimits::default() }, ..root() };
    let mut vm = Vm::with(&config);
    let report = limit(&vm, "pids");
    assert_eq!(report.effective, Some(30));
    let counted = "
import os, time
def fill():
    count = 0
    while True:
        try: pid = os.fork()
        except BlockingIOError: return count
        if pid == 0: os.closerange(0, 3); time.sleep(1000)
        count += 1
first = fill()
os.setresuid(1, 1, 1)
print(first + fill())
os.setresuid(1, 1, 1)
";
    if report.enforced_by != "cgroup" {
        println!("skipped: no controller for processes here: {:?}", report.missing);
        return;
    }
    let Some(done) = vm.python(counted) else { return };
    let started: u64 = done.output.trim().parse().unwrap_or_else(|_| panic!("{done:?}"));
    assert!((10..=40).contains(&started), "{started}");
    assert!(vm.list().is_ok(), "and init still has room for a helper");
}

#[test]
fn files_and_cores_are_as_large_as_asked_and_no_larger() {
    let limits = VmLimits { file_size_bytes: Some(1 << 20), ..VmLimits::default() };
    let mut vm = Vm::with(&with(limits));
    assert_eq!(limit(&vm, "file_size_bytes").effective, Some(1 << 20));
    let done = vm.sh("sh -c 'head -c 2000000 /dev/zero > big'; echo $?; stat -c %s big");
    assert_eq!(done.output.lines().rev().take(2).collect::<Vec<_>>(), ["1048576", "153"], "{done:?}");

    let crash = "sh -c 'kill -SEGV $$'; ls";
    assert_eq!(Vm::new().sh(crash).output.lines().filter(|line| line.contains("core")).count(), 0);
    let config = with(VmLimits { core_bytes: Some(1 << 20), ..VmLimits::default() });
    if crate::isolation::rlimits::cores_are_piped() {
        let host = Host::new();
        let created = host.run(host.zygote.create_vm(agentvm_wire::id::VmId::random(), &config));
        let refused = created.expect_err("it is refused");
        return assert_eq!((refused.step(), refused.path()), (Step::Limits, Some("limits.core_bytes")));
    }
    let mut vm = Vm::with(&config);
    if limit(&vm, "core_bytes").effective == Some(0) {
        println!("skipped: the hard limit of this process allows no core");
        return;
    }
    assert!(vm.sh(crash).output.contains("core"));
}

#[test]
fn nothing_is_left_of_a_vms_groups() {
    let id = {
        let vm = Vm::new();
        if limit(&vm, "pids").enforced_by != "cgroup" {
            println!("skipped: no groups here: {:?}", limit(&vm, "pids").missing);
            return;
        }
        let id = vm.booted.report.hostname.clone();
        assert_ne!(groups_named(&id), Vec::<String>::new());
        id
    };
    assert_eq!(groups_named(&id), Vec::<String>::new());
}

fn groups_named(part: &str) -> Vec<String> {
    let mut find = std::process::Command::new("find");
    find.args(["/sys/fs/cgroup", "-type", "d", "-name"]).arg(format!("*{part}*"));
    let found = String::from_utf8(find.output().unwrap().stdout).unwrap();
    found.lines().map(str::to_owned).collect()
}
