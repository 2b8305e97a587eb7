//! Attacks whose outcome is seen from outside; those whose outcome the guest itself sees are the attacker program's
//! (`escapes/`). `E` numbers are those of the project's list of escape attempts.

use agentvm_wire::process::SignalTarget;

use super::harness::{Vm, root};
use crate::init::Event;

#[test]
fn e101_the_hosts_cgroups_are_not_to_be_seen() {
    let of_host = std::fs::read_to_string("/proc/self/cgroup").unwrap();
    let inside = Vm::new().sh("cat /proc/self/cgroup").output;
    for path in of_host.lines().filter_map(|line| line.split(':').nth(2)).filter(|path| *path != "/") {
        assert!(!inside.contains(path), "{path} in {inside}");
    }
}

#[test]
fn e40_a_guest_that_kills_everything_kills_only_itself() {
    let mut vm = Vm::new();
    let (victim, killer) =
        (vm.start("sleep", &["1000"]), vm.start("sh", &["-c", "kill -KILL -1; kill -KILL $$"]));
    let mut ended = Vec::new();
    while ended.len() < 2 {
        if let Event::Exited { process, .. } = vm.event() {
            ended.push(process);
        }
    }
    ended.sort_unstable();
    assert_eq!(ended, [victim, killer]);
    assert_eq!(vm.sh("echo alive").output, "alive\n");
}

#[test]
fn e46_a_child_that_asks_init_to_trace_it_runs_on() {
    let mut vm = Vm::new();
    let program = format!(
        "import ctypes, os, signal\nlibc = ctypes.CDLL(None)\nlibc.syscall({}, 0, 0, 0, 0)\n\
         os.kill(os.getpid(), signal.SIGSTOP)\nprint('on')",
        libc::SYS_ptrace
    );
    if let Some(done) = vm.python(&program) {
        assert_eq!((done.code, done.output.as_str()), (Some(0), "on\n"), "E46");
    }
}

#[test]
fn e41_a_forged_hint_makes_no_exit() {
    // `agentos` may not even signal an init that has another uid.
    let mut vm = Vm::with(&root());
    let sleeper = vm.start("sleep", &["1000"]);
    let program = format!(
        "import ctypes, struct\nlibc = ctypes.CDLL(None)\ninfo = struct.pack('iiiiii', {0}, 0, -1, 0, 2, 1000) + bytes(104)\n\
         print(libc.syscall({1}, 1, {0}, info))",
        libc::SIGCHLD,
        libc::SYS_rt_sigqueueinfo
    );
    if let Some(done) = vm.python(&program) {
        assert_eq!(done.output, "0\n", "E41");
    }
    vm.booted.commands.signal(1, sleeper, libc::SIGKILL, SignalTarget::Process);
    assert_eq!(vm.event(), Event::Signaled { token: 1, delivered: 1 });
    assert!(
        matches!(vm.event(), Event::Exited { process, exit } if process == sleeper && exit.signal == Some(9))
    );
}
