//! What a guest can do: the host's tools just work.

use agentvm_wire::vm::VmConfig;

use super::harness::{Done, Vm, root};

fn ok(output: &str) -> Done {
    Done { code: Some(0), output: output.to_owned() }
}

#[test]
fn guests_are_agentos_or_root_as_asked() {
    assert_eq!(
        Vm::new().sh("id -un; id -u; id -g; echo $HOME $USER; pwd"),
        ok("agentos\n1000\n1000\n/home/agentos agentos\n/workspace\n")
    );
    assert_eq!(
        Vm::with(&root()).sh("id -un; id -u; id -g; echo $HOME $USER; pwd"),
        ok("root\n0\n0\n/root root\n/workspace\n")
    );
}

#[test]
fn guests_write_where_they_should() {
    for config in [VmConfig::default(), root()] {
        let mut vm = Vm::with(&config);
        let script = "set -e; for d in /workspace /tmp /var/tmp /dev/shm \"$HOME\"; do echo x > $d/f; cat $d/f; done; umask";
        assert_eq!(vm.sh(script), ok("x\nx\nx\nx\nx\n0022\n"));
    }
}

#[test]
fn the_locale_is_utf_8() {
    assert_eq!(Vm::new().sh("locale charmap"), ok("UTF-8\n"));
}

#[test]
fn standard_streams_open_by_name() {
    let mut vm = Vm::new();
    assert_eq!(
        vm.sh("echo a > /dev/stdout; echo b > /dev/stderr; echo c > /proc/self/fd/1"),
        ok("a\nb\nc\n")
    );
}

#[test]
fn the_host_name_is_the_one_asked_for_everywhere() {
    let mut vm = Vm::with(&VmConfig { hostname: Some("box-1.test".into()), ..VmConfig::default() });
    assert_eq!(vm.booted.report.hostname, "box-1.test");
    assert_eq!(
        vm.sh("hostname; cat /etc/hostname; grep -c box-1.test /etc/hosts"),
        ok("box-1.test\nbox-1.test\n1\n")
    );
}

#[test]
fn a_missing_working_directory_is_made_and_belongs_to_the_guest() {
    let mut vm = Vm::with(&VmConfig { cwd: Some("/srv/deep/down".into()), ..VmConfig::default() });
    assert_eq!(vm.sh("pwd; touch here && stat -c %U ."), ok("/srv/deep/down\nagentos\n"));
}

#[test]
fn loopback_is_up_and_nothing_else_is_there() {
    let mut vm = Vm::new();
    let program = "
import socket
s = socket.create_server(('127.0.0.1', 0)); socket.create_connection(s.getsockname()[:2])
s = socket.create_server(('::1', 0), family=socket.AF_INET6); socket.create_connection(s.getsockname()[:2])
print(','.join(name for _, name in socket.if_nameindex()))
";
    if let Some(done) = vm.python(program) {
        assert_eq!(done, ok("lo\n"));
    }
}

#[test]
fn common_programs_run() {
    let mut vm = Vm::new();
    let programs = [
        ("bash", "bash -c 'echo ${BASH_VERSION:+here}'"),
        (
            "git",
            "git init -q r && cd r && git -c user.name=n -c user.email=e commit -q --allow-empty -m here && git log --format=%s",
        ),
        ("gcc", "printf '#include <stdio.h>\\nint main(void){puts(\"here\");}' > a.c && gcc a.c -o a && ./a"),
        ("node", "node -e 'console.log(\"here\")'"),
        ("perl", "perl -MPOSIX -e 'print \"here\\n\"'"),
        (
            "python3",
            "/usr/bin/python3 -c 'import ssl, multiprocessing; multiprocessing.Lock(); print(\"here\")'",
        ),
        ("awk", "awk 'BEGIN { print \"here\" }'"),
    ];
    for (name, script) in programs {
        if vm.sh(&format!("command -v {name}")).code != Some(0) {
            println!("skipped {name}: this host has none to share");
            continue;
        }
        assert_eq!(vm.sh(script), ok("here\n"), "{name}");
    }
}

#[test]
fn the_disk_is_as_large_as_asked_and_no_larger() {
    let layer = agentvm_wire::vm::WritableLayer { size_bytes: Some(8 << 20), inodes: Some(400) };
    let mut vm = Vm::with(&VmConfig { writable_layer: layer, ..VmConfig::default() });
    let full = vm.sh("head -c 16000000 /dev/zero > /tmp/big");
    assert!(full.output.contains("No space left"), "{full:?}");
    let many = vm.sh("rm /tmp/big; cd /tmp; for i in $(seq 500); do : > f$i || exit 3; done");
    assert!(many.output.contains("No space left"), "{many:?}");
}
