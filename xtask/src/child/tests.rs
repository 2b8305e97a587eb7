//! A child's end, its output, its deadline and its group.

use std::process::Command;
use std::time::{Duration, Instant};

use super::{End, Streams, read, run, stdout_of, succeed};

const AMPLE: Duration = Duration::from_secs(60);

fn shell(script: &str) -> Command {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", script]);
    command
}

#[test]
fn the_exit_code_is_the_childs_own() {
    assert_eq!(run(&mut shell("exit 7"), AMPLE).unwrap().code(), Some(7));
}

#[test]
fn both_streams_are_read_in_the_order_written() {
    let (end, text) = read(&mut shell("echo a; echo b >&2; echo c"), Streams::Both, AMPLE).unwrap();
    assert!(end.success());
    assert_eq!(text, "a\nb\nc\n");
}

#[test]
fn a_failure_names_the_command_and_how_it_ended() {
    let error = succeed(&mut shell("exit 3"), AMPLE).unwrap_err().to_string();
    assert!(error.contains("exit 3") && error.contains("exit status: 3"), "{error}");
}

#[test]
fn a_program_that_does_not_exist_is_an_error() {
    let error = stdout_of(&mut Command::new("/no/such/program"), AMPLE).unwrap_err().to_string();
    assert!(error.contains("`program` did not start"), "{error}");
}

#[test]
fn a_hung_child_is_killed_with_its_children() {
    let limit = Duration::from_millis(300);
    let (end, text) = read(&mut shell("sleep 1000 & echo $!; wait"), Streams::Both, limit).unwrap();
    assert_eq!(end, End::Overdue(limit));
    assert!(is_gone(text.trim()), "{text}");
}

#[test]
fn a_descendant_left_behind_neither_delays_the_end_nor_lives_on() {
    let start = Instant::now();
    let (end, text) = read(&mut shell("sleep 1000 & echo $!"), Streams::Both, AMPLE).unwrap();
    assert!(end.success() && start.elapsed() < AMPLE);
    assert!(is_gone(text.trim()), "{text}");
}

/// Whether a process is dead, within the time a kernel may take to kill it. One that nobody has reaped is dead.
fn is_gone(pid: &str) -> bool {
    let path = format!("/proc/{pid}/stat");
    let start = Instant::now();
    while std::fs::read_to_string(&path).is_ok_and(|line| !line.contains(") Z ")) {
        if start.elapsed() > Duration::from_secs(5) {
            return false;
        }
        std::thread::yield_now();
    }
    true
}
