//! The child that init forks ahead of a start, and what guests of its uid can do to it.
//!
//! Each test holds also where the start finds no spare, e.g. because the machine was slow; it then proves less.

use agentvm_wire::vm::VmConfig;

use super::harness::{Done, Vm, now_ms, root};
use crate::init::{Event, StartSpec, StartStep, Stdio};

/// Shell: waits for the spare that follows this script's own start, and says its pid.
const FIND_SPARE: &str = "while :; do for p in /proc/[0-9]*; do p=${p#/proc/}; \
     [ $p != 1 ] && read c </proc/$p/comm && [ $c = agentvm-init ] && break 2; done 2>/dev/null; done; ";

/// As whom a guest has init's uid: always as root of the VM, else where the sidecar is an ordinary user.
fn configs() -> [VmConfig; 2] {
    [VmConfig::default(), root()]
}

fn echo(vm: &mut Vm) -> Done {
    vm.sh("echo here")
}

fn here() -> Done {
    Done { code: Some(0), output: "here\n".into() }
}

#[test]
fn a_spare_becomes_the_next_process() {
    let mut vm = Vm::new();
    // A machine that is slow for a moment may have lost it meanwhile.
    let becomes_it = (0..20).any(|_| {
        let spare = vm.sh(&format!("{FIND_SPARE} echo $p")).output;
        let (id, spec) = (vm.id(), vm.spec("true", &[]));
        vm.booted.commands.start(id, spec);
        loop {
            match vm.event() {
                Event::Started { process, pid, .. } if process == id => {
                    break spare.trim() == pid.to_string();
                }
                _ => {}
            }
        }
    });
    assert!(becomes_it);
}

#[test]
fn a_killed_spare_costs_no_start() {
    for config in configs() {
        let mut vm = Vm::with(&config);
        for _ in 0..20 {
            // Where it may not be killed, it is not.
            vm.sh(&format!("{FIND_SPARE} kill -KILL $p"));
            assert_eq!(echo(&mut vm), here());
            vm.start("sh", &["-c", "kill -KILL -1; kill -KILL $$"]);
            while !matches!(vm.event(), Event::Exited { .. }) {}
            assert_eq!(echo(&mut vm), here());
        }
    }
}

#[test]
fn a_stopped_spare_costs_no_start() {
    for config in configs() {
        let mut vm = Vm::with(&config);
        for _ in 0..20 {
            vm.sh(&format!("{FIND_SPARE} kill -STOP $p"));
            assert_eq!(echo(&mut vm), here());
        }
        let (stopper, _) = vm.start_until_line("echo on; while :; do kill -STOP -1; done");
        for _ in 0..20 {
            vm.start("sleep", &["1001"]);
        }
        assert_eq!(vm.kill_tree(stopper), 1);
    }
}

#[test]
fn a_spare_is_in_no_list_and_in_no_tree() {
    let mut vm = Vm::new();
    let (first, _) = vm.start_until_line(&format!("{FIND_SPARE} echo on; exec sleep 1001"));
    assert_eq!(vm.list().unwrap().len(), 2, "init and sleep");
    let second = vm.start("sleep", &["1002"]);
    assert_eq!(vm.kill_tree(first), 1);
    assert_eq!(vm.kill_tree(second), 1);
    assert_eq!(vm.list().unwrap().len(), 1);
}

#[test]
fn a_process_is_as_old_as_its_start() {
    let mut vm = Vm::new();
    vm.sh(FIND_SPARE);
    let asked = now_ms();
    let (id, spec) = (vm.id(), vm.spec("sleep", &["1000"]));
    vm.booted.commands.start(id, spec);
    let Event::Started { started_at_ms, .. } = vm.event() else { panic!("it starts") };
    assert!(started_at_ms >= asked);
    let rows = vm.list().unwrap();
    assert_eq!(rows.iter().find(|row| row.process == Some(id)).unwrap().started_at_ms, started_at_ms);
}

#[test]
fn nobody_holds_the_pipe_of_a_process_that_has_ended() {
    let mut vm = Vm::new();
    let (read, write) = vm.pipe();
    let id = vm.id();
    let script = format!("{FIND_SPARE} echo on; exec sleep 1000");
    let spec = StartSpec { stdout: Stdio::Fd(write), ..vm.spec("sh", &["-c", &script]) };
    vm.booted.commands.start(id, spec);
    assert!(matches!(vm.event(), Event::Started { .. }));
    assert_eq!(rustix::io::read(&read, &mut [0; 3]), Ok(3), "on");
    // One that was forked while the first ran, and one that is forked now.
    vm.start("sleep", &["1001"]);
    assert_eq!(vm.sh("ls /proc/self/fd").output, "0\n1\n2\n3\n", "3 is ls's own");
    assert_eq!(vm.kill_tree(id), 1);
    // The end comes while the others live on.
    assert_eq!(rustix::io::read(&read, &mut [0; 1]), Ok(0));
}

#[test]
fn a_start_that_fails_in_a_spare_says_which_step_and_why() {
    let mut vm = Vm::new();
    let long = vec![b'x'; 20_000];
    for (command, cwd, args, expected) in [
        ("not-there", "/", vec![], (StartStep::Exec, libc::ENOENT)),
        ("true", "/not-there", vec![], (StartStep::Cwd, libc::ENOENT)),
        ("not-there", "/", vec![long], (StartStep::Exec, libc::ENOENT)),
        ("true", "/", vec![b"a\0b".to_vec()], (StartStep::Request, libc::EINVAL)),
    ] {
        vm.sh(FIND_SPARE);
        let (read, write) = vm.pipe();
        let (id, stdout) = (vm.id(), Stdio::Fd(write));
        let spec = StartSpec { cwd: cwd.into(), args, stdout, ..vm.spec(command, &[]) };
        vm.booted.commands.start(id, spec);
        let (step, errno) = expected;
        assert_eq!(vm.event(), Event::StartFailed { process: id, step, errno });
        assert_eq!(rustix::io::read(&read, &mut [0; 1]), Ok(0), "nothing of it is left, not even a word");
    }
}

#[test]
fn two_hundred_starts_at_once_get_each_its_own_streams() {
    let mut vm = Vm::new();
    let mut pipes = Vec::new();
    for number in 0..200 {
        let (read, write) = vm.pipe();
        let (id, script) = (vm.id(), format!("echo {number}"));
        let spec = StartSpec { stdout: Stdio::Fd(write), ..vm.spec("sh", &["-c", &script]) };
        vm.booted.commands.start(id, spec);
        pipes.push(std::fs::File::from(read));
    }
    let mut exited = 0;
    while exited < pipes.len() {
        exited += usize::from(matches!(vm.event(), Event::Exited { .. }));
    }
    for (number, mut pipe) in pipes.into_iter().enumerate() {
        let mut output = String::new();
        std::io::Read::read_to_string(&mut pipe, &mut output).unwrap();
        assert_eq!(output, format!("{number}\n"));
    }
}
