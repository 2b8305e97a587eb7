//! The process table.

use std::time::Duration;

use agentvm_wire::process::ProcessRef;

use super::harness::{Vm, now_ms};
use crate::init::{Handle, Page, ReadError, Reading, Row};

/// Shell: waits until process `$p` is a sleep rather than a shell about to become one.
const UNTIL_SLEEP: &str = "while [ \"$(cat /proc/$p/comm)\" != sleep ]; do :; done";

fn row_of<'a>(rows: &'a [Row], comm: &str) -> &'a Row {
    let mut rows = rows.iter().filter(|row| row.comm == comm.as_bytes());
    let row = rows.next().unwrap_or_else(|| panic!("{comm} is there"));
    assert!(rows.next().is_none(), "{comm} is there once");
    row
}

#[test]
fn each_process_has_one_row_and_the_helper_none() {
    let mut vm = Vm::new();
    let first = vm.start("sleep", &["1001"]);
    let (second, child) = vm.start_until_line(&format!("sleep 1002 & p=$!; {UNTIL_SLEEP}; echo $p; wait"));
    let rows = vm.list().unwrap();
    let names: Vec<_> = rows.iter().map(|row| String::from_utf8_lossy(&row.comm).into_owned()).collect();
    assert_eq!(names, ["agentvm-init", "sleep", "sh", "sleep"]);
    let [init, sleep, sh, inner] = &rows[..] else { unreachable!() };
    assert_eq!((init.pid, init.ppid, init.process), (1, 0, None));
    assert_eq!(init.args, [b"agentvm-init"]);
    assert_eq!((sleep.process, sleep.ppid), (Some(first), 1));
    assert_eq!(sleep.args, [&b"sleep"[..], b"1001"]);
    assert_eq!((sleep.pgid, sleep.sid), (sleep.pid, sleep.pid));
    assert_eq!(sleep.cwd.as_deref(), Some(&b"/workspace"[..]));
    assert_eq!(sleep.state, b'S');
    assert!(sleep.rss_bytes > 0);
    assert_eq!((sh.process, sh.root), (Some(second), Some(second)));
    assert_eq!((inner.process, inner.root), (None, Some(second)));
    assert_eq!((inner.ppid, inner.pid.to_string()), (sh.pid, child));
    let now = now_ms();
    assert!(now.abs_diff(sleep.started_at_ms) < 20_000, "{now} {}", sleep.started_at_ms);
}

#[test]
fn e67_names_and_arguments_are_exact_whatever_they_hold() {
    let mut vm = Vm::new();
    vm.sh("cp /usr/bin/sleep './a) R 1 (b'");
    vm.start("./a) R 1 (b", &["1000"]);
    vm.start("sh", &["-c", "kill -STOP $$", "", "a b", "new\nline", ""]);
    let rows = vm.list().unwrap();
    assert_eq!(row_of(&rows, "a) R 1 (b").args, [&b"./a) R 1 (b"[..], b"1000"]);
    let sh = row_of(&rows, "sh");
    assert_eq!(sh.args[3..], [&b""[..], b"a b", b"new\nline", b""]);
    assert!(!sh.args_truncated);
}

#[test]
fn descendants_keep_their_mark_whatever_they_leave() {
    let mut vm = Vm::new();
    let script = "p=$(setsid sh -c 'sleep 1003 >/dev/null & echo $!')";
    let (id, _) = vm.start_until_line(&format!("{script}; {UNTIL_SLEEP}; echo on; exec sleep 1004"));
    let rows = vm.list().unwrap();
    let orphan = rows.iter().find(|row| row.args.get(1).is_some_and(|arg| arg == b"1003")).unwrap();
    assert_eq!((orphan.root, orphan.ppid), (Some(id), 1));
}

#[test]
fn a_zombie_is_listed_as_one_and_belongs_where_its_parent_does() {
    let mut vm = Vm::new();
    // A sleep that was a shell when it got its child never waits for it.
    let (id, _) = vm.start_until_line(
        "(while [ \"$(cat /proc/$$/comm)\" != sleep ]; do :; done) & echo on; exec sleep 1000",
    );
    let zombie = loop {
        let rows = vm.list().unwrap();
        if let Some(zombie) = rows.into_iter().find(|row| row.state == b'Z') {
            break zombie;
        }
    };
    assert_eq!((zombie.process, zombie.root, &zombie.args), (None, Some(id), &Vec::<Vec<u8>>::new()));
}

#[test]
fn long_arguments_are_cut_and_marked_and_a_page_holds_what_fits() {
    let mut vm = Vm::new();
    let limit = Duration::from_secs(10);
    let long = "x".repeat(100_000);
    for _ in 0..20 {
        vm.start("sh", &["-c", "kill -STOP $$", &long]);
    }
    let all = vm.list_within(64 << 20, limit).unwrap();
    let shells: Vec<_> = all.iter().filter(|row| row.comm == b"sh").collect();
    assert_eq!(shells.len(), 20);
    assert!(shells.iter().all(|row| row.args_truncated && row.args.len() == 4));
    let bytes: usize = shells[0].args.iter().map(|arg| arg.len() + 1).sum();
    assert!((65_530..=65_540).contains(&bytes), "{bytes}");

    let mut paged = Vec::new();
    loop {
        let page = vm.page(paged.last().map_or(0, |row: &Row| row.pid), 300_000, limit).unwrap();
        assert!((1..=5).contains(&page.rows.len()), "{} rows", page.rows.len());
        paged.extend(page.rows);
        if !page.more {
            break;
        }
    }
    let pids = |rows: &[Row]| rows.iter().map(|row| row.pid).collect::<Vec<_>>();
    assert_eq!(pids(&paged), pids(&all));
    let behind = vm.page(all.last().unwrap().pid, 300_000, limit).unwrap();
    assert_eq!(behind, Page { rows: Vec::new(), more: false });
    assert_eq!(vm.page(0, 20, limit), Err(ReadError::TooLarge { limit_bytes: 20 }));
}

#[test]
fn many_arguments_are_cut_and_marked() {
    let mut vm = Vm::new();
    let many = vec![""; 10_000];
    vm.start("sh", &[&["-c", "kill -STOP $$"], &many[..]].concat());
    let rows = vm.list().unwrap();
    let sh = row_of(&rows, "sh");
    assert_eq!((sh.args.len(), sh.args_truncated), (4096, true));
}

#[test]
fn a_list_of_a_vm_that_has_ended_says_so() {
    let mut vm = Vm::new();
    vm.booted.commands.end();
    assert_eq!(vm.list(), Err(ReadError::Ended));
    assert_eq!(vm.run(vm.booted.commands.list(0, 1000, Duration::from_secs(1))), Err(ReadError::Ended));
}

#[test]
fn e58_a_guest_that_stops_everything_it_sees_delays_no_list() {
    let mut vm = Vm::new();
    let stopper = "echo on; while :; do kill -STOP -1; done";
    let (_, on) = vm.start_until_line(stopper);
    assert_eq!(on, "on");
    for _ in 0..20 {
        let rows = vm.list_within(1 << 20, Duration::from_secs(5));
        assert!(rows.is_ok_and(|rows| rows.len() == 2), "E58");
    }
}

/// Python: a main thread that ends while another one goes on, and says so once that is so.
const HEADLESS: &str = "
import os, threading, time
def live():
    while ') Z ' not in open('/proc/self/task/%d/stat' % os.getpid()).read(): time.sleep(0.001)
    print('on', flush=True)
    time.sleep(1000)
threading.Thread(target=live).start()
__import__('ctypes').CDLL(None).syscall(60 if os.uname().machine == 'x86_64' else 93, 0)
";

#[test]
fn a_process_whose_main_thread_has_ended_is_listed_as_what_it_still_is() {
    if !std::path::Path::new("/usr/bin/python3").exists() {
        return println!("skipped: this host has no /usr/bin/python3 to share");
    }
    let mut vm = Vm::new();
    vm.sh(&format!("cat > headless.py <<'E'{HEADLESS}E"));
    let (id, on) = vm.start_until_line("exec python3 headless.py 'a b'");
    assert_eq!(on, "on");
    let rows = vm.list().unwrap();
    let row = rows.iter().find(|row| row.process == Some(id)).unwrap();
    assert_ne!(char::from(row.state), 'Z');
    assert_eq!(row.args, [&b"python3"[..], b"headless.py", b"a b"]);
    assert_eq!(row.cwd.as_deref(), Some(&b"/workspace"[..]));
    assert!(row.rss_bytes > 0);

    let handles = vm.read::<Handle>(Reading::FileHandles { of: ProcessRef::Process(id), after: None });
    assert_eq!(handles.unwrap().rows[0].fd, 0);
}

#[test]
fn a_start_that_has_not_executed_its_command_is_not_listed() {
    let mut vm = Vm::new();
    // Its working directory is a fifo's: not entered before somebody opens that, which nobody does.
    for _ in 0..100 {
        let id = vm.id();
        let spec = vm.spec("sleep", &["1000"]);
        vm.booted.commands.start(id, spec);
        for row in vm.list().unwrap() {
            assert!(row.comm == b"sleep" || row.pid == 1, "{row:?}");
            assert!(row.pid == 1 || row.process.is_some(), "{row:?}");
        }
    }
}
