//! Killing trees.

use std::time::{Duration, Instant};

use agentvm_wire::process::SignalTarget;
use agentvm_wire::vm::{VmConfig, VmLimits};

use super::harness::{Vm, root};
use crate::init::Event;

/// Names of everything that runs beside init.
fn running(vm: &mut Vm) -> Vec<String> {
    let rows = vm.list().unwrap();
    assert_eq!(rows[0].pid, 1, "{rows:?}");
    rows[1..].iter().map(|row| String::from_utf8_lossy(&row.comm).into_owned()).collect()
}

#[test]
fn a_killed_tree_is_gone_with_all_that_left_it() {
    for config in [VmConfig::default(), root()] {
        let mut vm = Vm::with(&config);
        let other = vm.start("sleep", &["1001"]);
        let (id, _) = vm.start_until_line(
            "setsid sh -c '(trap \"\" TERM HUP; sleep 1002 & sleep 1003 & kill -STOP $!; echo on; wait)' & \
             nohup sleep 1004 >/dev/null 2>&1 & wait",
        );
        assert!(vm.kill_tree(id) >= 4);
        assert_eq!(running(&mut vm), ["sleep"]);
        assert_eq!(vm.kill_tree(other), 1);
        assert_eq!(running(&mut vm), Vec::<String>::new());
    }
}

#[test]
fn c37_the_end_of_a_killed_process_is_told_when_nobody_of_its_tree_is_left() {
    let mut vm = Vm::new();
    for _ in 0..20 {
        let many = "for i in 1 2 3 4 5 6 7 8 9; do sleep 1001 & setsid sleep 1002 & done; echo on; wait";
        let (id, _) = vm.start_until_line(many);
        vm.booted.commands.signal(1, id, libc::SIGKILL, SignalTarget::Tree);
        while !matches!(vm.event(), Event::Exited { process, .. } if process == id) {}
        assert_eq!(running(&mut vm), Vec::<String>::new(), "C37");
    }
}

#[test]
fn a_tree_is_killed_also_when_its_root_has_ended() {
    let mut vm = Vm::new();
    let (id, _) = vm.start_until_line("(setsid sleep 1001 &) ; echo on");
    while !matches!(vm.event(), Event::Exited { process, .. } if process == id) {}
    assert_eq!(vm.kill_tree(id), 1);
    assert_eq!(running(&mut vm), Vec::<String>::new());
    assert_eq!(vm.kill_tree(id), 0);
}

#[test]
fn e64_a_fork_bomb_is_gone_in_time_and_others_live_on() {
    let limits = VmLimits { pids: Some(200), ..VmLimits::default() };
    let mut vm = Vm::with(&VmConfig { limits, ..VmConfig::default() });
    if vm.sh("command -v perl").code != Some(0) {
        println!("skipped: this host has no perl to share");
        return;
    }
    let other = vm.start("sleep", &["1001"]);
    // Most of 128 fork by the time the first says so.
    let (bomb, _) = vm.start_until_line(
        "exec perl -e '$first = $$; fork for 1..7; syswrite STDOUT, qq(on\n) if $$ == $first; fork while 1'",
    );
    let start = Instant::now();
    assert!(vm.kill_tree(bomb) > 0);
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
    assert_eq!(running(&mut vm), ["sleep"], "E64");
    assert_eq!(vm.kill_tree(other), 1);
}

#[test]
fn many_trees_at_once_are_killed_as_fast_as_they_were_started() {
    let mut vm = Vm::new();
    let begun = Instant::now();
    let mut sleepers: Vec<_> = (0..400).map(|_| vm.start("sleep", &["1001"])).collect();
    let started = begun.elapsed();
    let begun = Instant::now();
    for id in &sleepers {
        vm.booted.commands.signal(u64::from(id.0), *id, libc::SIGKILL, SignalTarget::Tree);
    }
    while !sleepers.is_empty() {
        if let Event::Signaled { token, delivered } = vm.event() {
            assert_eq!(delivered, 1);
            sleepers.retain(|id| u64::from(id.0) != token);
        }
    }
    let killed = begun.elapsed();
    assert!(killed < started * 2, "killed in {killed:?}, started in {started:?}");
}

#[test]
fn e62_a_child_made_as_inits_own_belongs_to_the_tree() {
    let mut vm = Vm::new();
    if vm.python("").is_none() {
        return;
    }
    let clone_parent = format!(
        "exec /usr/bin/python3 -c 'import ctypes, os\nlibc = ctypes.CDLL(None)\n\
         if libc.syscall({}, 0x8000 | 17, 0, 0, 0, 0) == 0: os.execv(\"/bin/sleep\", [\"sleep\", \"1001\"])\n\
         print(\"on\", flush=True)\nimport time; time.sleep(1000)'",
        libc::SYS_clone
    );
    let (id, _) = vm.start_until_line(&clone_parent);
    assert_eq!(vm.kill_tree(id), 2, "E62");
    assert_eq!(running(&mut vm), Vec::<String>::new());
}

#[test]
fn other_signals_reach_the_whole_tree_once() {
    let mut vm = Vm::new();
    let (id, _) = vm.start_until_line("setsid sleep 1001 & sleep 1002 & echo on; wait");
    vm.booted.commands.signal(1, id, libc::SIGTERM, SignalTarget::Tree);
    assert_eq!(vm.event(), Event::Signaled { token: 1, delivered: 3 });
    assert!(matches!(vm.event(), Event::Exited { process, .. } if process == id));
}

#[test]
fn a_tree_that_is_still_starting_is_killed_once_it_runs() {
    let mut vm = Vm::new();
    let (id, spec) = (vm.id(), vm.spec("sleep", &["1000"]));
    vm.booted.commands.start(id, spec);
    vm.booted.commands.signal(1, id, libc::SIGKILL, SignalTarget::Tree);
    assert!(matches!(vm.event(), Event::Started { .. }));
    let mut seen = Vec::new();
    for _ in 0..2 {
        seen.push(match vm.event() {
            Event::Exited { exit, .. } => exit.signal,
            Event::Signaled { token: 1, delivered: 1 } => None,
            other => panic!("{other:?}"),
        });
    }
    seen.sort_unstable();
    assert_eq!(seen, [None, Some(9)]);
}

#[test]
fn a_process_that_starts_while_a_tree_is_killed_is_none_of_it() {
    let mut vm = Vm::new();
    for round in 0..200 {
        let victim = vm.start("sleep", &["1001"]);
        vm.booted.commands.signal(1, victim, libc::SIGKILL, SignalTarget::Tree);
        let mut others: Vec<_> = (0..8)
            .map(|_| {
                let (id, spec) = (vm.id(), vm.spec("true", &[]));
                vm.booted.commands.start(id, spec);
                id
            })
            .collect();
        let (mut answered, mut ended) = (false, false);
        while !(answered && ended && others.is_empty()) {
            match vm.event() {
                Event::Started { .. } => {}
                Event::Signaled { token: 1, .. } => answered = true,
                Event::Exited { process, .. } if process == victim => ended = true,
                Event::Exited { process, exit } => {
                    assert_eq!((exit.exit_code, exit.signal), (Some(0), None), "round {round}");
                    others.retain(|other| *other != process);
                }
                other => panic!("{other:?}"),
            }
        }
    }
}

#[test]
fn a_process_whose_main_thread_has_ended_is_killed_like_any_other() {
    let mut vm = Vm::new();
    if vm.python("").is_none() {
        return;
    }
    let headless = format!(
        "exec /usr/bin/python3 -c 'import ctypes, os, threading, time\n\
         def live():\n while open(\"/proc/self/stat\").read().rsplit(\")\")[1][1] != \"Z\": pass\n \
         print(\"on\", flush=True); time.sleep(1000)\n\
         threading.Thread(target=live).start()\nctypes.CDLL(None).syscall({}, 0)'",
        libc::SYS_exit
    );
    let (id, on) = vm.start_until_line(&headless);
    assert_eq!(on, "on");
    assert_eq!(vm.kill_tree(id), 1);
    assert_eq!(running(&mut vm), Vec::<String>::new());
}
