//! The process table.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::harness::Vm;
use crate::init::{ListError, Listing, Row};

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
    assert_eq!((sh.process, inner.process), (Some(second), Some(second)));
    assert_eq!((inner.ppid, inner.pid.to_string()), (sh.pid, child));
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis();
    assert!(now.abs_diff(u128::from(sleep.started_at_ms)) < 20_000, "{now} {}", sleep.started_at_ms);
}

#[test]
fn names_and_arguments_are_exact_whatever_they_hold() {
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
    assert_eq!((orphan.process, orphan.ppid), (Some(id), 1));
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
    assert_eq!((zombie.process, &zombie.args), (Some(id), &Vec::<Vec<u8>>::new()));
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
    assert_eq!(behind, Listing { rows: Vec::new(), more: false });
    assert_eq!(vm.page(0, 20, limit), Err(ListError::TooLarge { limit_bytes: 20 }));
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
    assert_eq!(vm.list(), Err(ListError::Ended));
    assert_eq!(vm.run(vm.booted.commands.list(0, 1000, Duration::from_secs(1))), Err(ListError::Ended));
}

#[test]
fn a_guest_that_stops_everything_it_sees_delays_no_list() {
    let mut vm = Vm::new();
    let stopper = "echo on; while :; do kill -STOP -1; done";
    let (_, on) = vm.start_until_line(stopper);
    assert_eq!(on, "on");
    for _ in 0..20 {
        let rows = vm.list_within(1 << 20, Duration::from_secs(5));
        assert!(rows.is_ok_and(|rows| rows.len() == 2), "E58");
    }
}
