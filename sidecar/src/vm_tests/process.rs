//! Processes of a VM: starting, ending, signals.

use rustix::io::Errno;

use super::harness::{Done, Vm};
use agentvm_wire::process::SignalTarget;

use crate::init::{Event, StartSpec, StartStep, Stdio};

fn failure(vm: &mut Vm, spec: StartSpec) -> (StartStep, Errno) {
    let id = vm.id();
    vm.booted.commands.start(id, spec);
    match vm.event() {
        Event::StartFailed { process, step, errno } if process == id => {
            (step, Errno::from_raw_os_error(errno))
        }
        other => panic!("expected a failed start, got {other:?}"),
    }
}

#[test]
fn a_start_that_fails_says_which_step_and_why() {
    let mut vm = Vm::new();
    vm.sh("touch plain; printf 'no magic' > text; chmod +x text; mkdir -m 0 closed; ln -s loop loop");
    for (command, errno) in [
        ("not-there", Errno::NOENT),
        ("", Errno::NOENT),
        ("./not-there", Errno::NOENT),
        ("/workspace/plain", Errno::ACCESS),
        ("./plain", Errno::ACCESS),
        ("/workspace", Errno::ACCESS),
        ("./text", Errno::NOEXEC),
        ("./loop", Errno::LOOP),
        ("./plain/x", Errno::NOTDIR),
    ] {
        let spec = vm.spec(command, &[]);
        assert_eq!(failure(&mut vm, spec), (StartStep::Exec, errno), "{command}");
    }
    for (cwd, errno) in [
        ("/not-there", Errno::NOENT),
        ("/workspace/plain", Errno::NOTDIR),
        ("/workspace/closed", Errno::ACCESS),
    ] {
        let spec = StartSpec { cwd: cwd.into(), ..vm.spec("true", &[]) };
        assert_eq!(failure(&mut vm, spec), (StartStep::Cwd, errno), "{cwd}");
    }
    let spec = StartSpec { args: vec![vec![b'x'; 200_000]], ..vm.spec("true", &[]) };
    assert_eq!(failure(&mut vm, spec), (StartStep::Exec, Errno::TOOBIG));
    let spec = StartSpec { args: vec![b"a\0b".to_vec()], ..vm.spec("true", &[]) };
    assert_eq!(failure(&mut vm, spec), (StartStep::Request, Errno::INVAL));
    assert_eq!(vm.sh("echo still here").output, "still here\n");
}

#[test]
fn a_name_that_may_not_be_executed_is_remembered_while_path_is_searched() {
    let mut vm = Vm::new();
    vm.sh("mkdir -p one two; echo x > one/tool; printf '#!/bin/sh\\necho two' > two/tool; chmod +x two/tool");
    let with_path = |vm: &Vm, path: &str| StartSpec {
        env: vec![(b"PATH".to_vec(), path.into())],
        ..vm.spec("tool", &[])
    };
    let spec = with_path(&vm, "/workspace/one:/nowhere");
    assert_eq!(failure(&mut vm, spec), (StartStep::Exec, Errno::ACCESS));
    let spec = with_path(&vm, "/nowhere:/usr/bin");
    assert_eq!(failure(&mut vm, spec), (StartStep::Exec, Errno::NOENT));
    let (id, spec) = (vm.id(), with_path(&vm, "/workspace/one:/nowhere:/workspace/two"));
    vm.booted.commands.start(id, spec);
    assert!(matches!(vm.event(), Event::Started { .. }));
}

#[test]
fn arguments_and_environment_arrive_exactly() {
    let mut vm = Vm::new();
    let done = vm.exec("printf", &["[%s]", "", "a b", "new\nline", "ü"]);
    assert_eq!(done, Done { code: Some(0), output: "[][a b][new\nline][ü]".into() });
    let (read, write) = vm.pipe();
    let id = vm.id();
    let spec = StartSpec {
        env: vec![(b"ONLY".to_vec(), b"\xff=\n".to_vec())],
        stdout: Stdio::Fd(write),
        ..vm.spec("/usr/bin/env", &[])
    };
    vm.booted.commands.start(id, spec);
    let mut output = Vec::new();
    std::io::Read::read_to_end(&mut std::fs::File::from(read), &mut output).unwrap();
    assert_eq!(output, b"ONLY=\xff=\n\n");
}

#[test]
fn strings_arrive_whether_or_not_they_fit_into_a_message() {
    let mut vm = Vm::new();
    for length in (14_800..16_800).step_by(100).chain([130_000]) {
        let done = vm.exec("/bin/sh", &["-c", "echo ${#1}", "", &"x".repeat(length)]);
        assert_eq!(done.output, format!("{length}\n"));
    }
}

#[test]
fn exit_codes_and_signals_are_told_apart() {
    let mut vm = Vm::new();
    for code in [0, 1, 42, 127, 137, 255] {
        assert_eq!(vm.sh(&format!("exit {code}")).code, Some(code));
    }
    let id = vm.start("sh", &["-c", "kill -TERM $$"]);
    let Event::Exited { process, exit } = vm.event() else { panic!("it ends") };
    assert_eq!((process, exit.exit_code, exit.signal, exit.core_dumped), (id, None, Some(15), false));
    assert!(exit.max_rss_bytes > 0 && exit.exited_at_ms > 1_600_000_000_000);
}

#[test]
fn a_crash_dumps_no_core() {
    let mut vm = Vm::new();
    vm.start("sh", &["-c", "kill -SEGV $$"]);
    let Event::Exited { exit, .. } = vm.event() else { panic!("it ends") };
    assert_eq!((exit.signal, exit.core_dumped), (Some(11), false));
    assert_eq!(vm.sh("ls /workspace").output, "");
}

#[test]
fn signals_sent_at_once_after_start_are_delivered_to_the_command() {
    let mut vm = Vm::new();
    let (read, write) = vm.pipe();
    let id = vm.id();
    let spec = StartSpec { stdout: Stdio::Fd(write), ..vm.spec("sleep", &["1000"]) };
    vm.booted.commands.start(id, spec);
    vm.booted.commands.signal(7, id, libc::SIGTERM, SignalTarget::Group);
    drop(read);
    assert!(matches!(vm.event(), Event::Started { process, .. } if process == id));
    assert_eq!(vm.event(), Event::Signaled { token: 7, delivered: 1 });
    assert!(matches!(vm.event(), Event::Exited { exit, .. } if exit.signal == Some(libc::SIGTERM)));
    vm.booted.commands.signal(8, id, libc::SIGTERM, SignalTarget::Process);
    assert_eq!(vm.event(), Event::Signaled { token: 8, delivered: 0 });
}

#[test]
fn three_hundred_starts_at_once_all_come_back() {
    let mut vm = Vm::new();
    let ids: Vec<_> = (0..300).map(|_| vm.id()).collect();
    for id in &ids {
        let spec = vm.spec("/bin/true", &[]);
        vm.booted.commands.start(*id, spec);
    }
    let mut exited = 0;
    while exited < ids.len() {
        match vm.event() {
            Event::Started { .. } => {}
            Event::Exited { exit, .. } => {
                assert_eq!(exit.exit_code, Some(0));
                exited += 1;
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_process_has_its_three_streams_and_no_other_descriptor() {
    let mut vm = Vm::new();
    let done = vm.sh("ls /proc/self/fd");
    assert_eq!(done.output, "0\n1\n2\n3\n", "3 is ls's own");
    assert_eq!(vm.sh("readlink /proc/self/fd/0").output, "/dev/null\n");
    assert_eq!(
        vm.sh("cat /proc/self/sessionid >/dev/null; ps -o sid=,pgid=,pid= -p $$ | tr -s ' '").code,
        Some(0)
    );
}

#[test]
fn a_command_that_stops_itself_at_once_stays_stopped() {
    let mut vm = Vm::new();
    let stopped: Vec<_> = (0..50).map(|_| vm.start("sh", &["-c", "kill -STOP $$; exit 3"])).collect();
    while vm.list().unwrap().iter().filter(|row| row.state == b'T').count() < stopped.len() {}
    for id in stopped {
        vm.booted.commands.signal(1, id, libc::SIGCONT, SignalTarget::Process);
        while !matches!(vm.event(), Event::Exited { process, exit } if process == id && exit.exit_code == Some(3))
        {
        }
    }
}

#[test]
fn orphans_are_reaped() {
    let mut vm = Vm::new();
    vm.sh("for i in 1 2 3 4 5; do (setsid sh -c 'exit 0' &) ; done");
    assert_eq!(vm.sh("while ps -eo stat= | grep -q Z; do :; done; echo none").output, "none\n");
}
