//! The examples as their reader runs them: what becomes of them when their output can no longer be written.

use std::{
    fs::File,
    io::Read as _,
    process::{Command, Stdio},
};

use crate::support::{program, within};

/// The status of an example whose output goes to a reader that leaves after the first bytes, if any are expected.
async fn with_reader_that_leaves(name: &str, arguments: &[&str], reads: usize) -> Option<i32> {
    let mut example = Command::new(program(name))
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdout = example.stdout.take().unwrap();
    stdout.read_exact(&mut vec![0; reads]).unwrap();
    drop(stdout);
    let ended = tokio::task::spawn_blocking(move || example.wait().unwrap());
    within(ended).await.unwrap().code()
}

#[tokio::test]
async fn an_example_whose_reader_has_gone_ends_as_a_shell_command_would() {
    assert_eq!(with_reader_that_leaves("exec", &["yes"], 2).await, Some(141));
    assert_eq!(with_reader_that_leaves("spawn", &["yes"], 2).await, Some(141));
    assert_eq!(with_reader_that_leaves("spawn", &[], 0).await, Some(141));
    assert_eq!(
        with_reader_that_leaves("observe", &["--", "sh", "-c", "yes | head -n 99999"], 2).await,
        Some(141)
    );
    assert_eq!(with_reader_that_leaves("process_tree", &[], 0).await, Some(141));
    assert_eq!(with_reader_that_leaves("process_tree", &["--json"], 0).await, Some(141));
}

#[test]
fn an_example_that_cannot_write_says_so() {
    for (name, arguments) in
        [("exec", &["echo lost"][..]), ("spawn", &["echo", "lost"]), ("process_tree", &[])]
    {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let example =
            Command::new(program(name)).args(arguments).stdin(Stdio::null()).stdout(full).output().unwrap();
        let stderr = String::from_utf8_lossy(&example.stderr);
        assert_eq!(example.status.code(), Some(1), "{name}: {stderr}");
        assert!(stderr.contains("No space left on device"), "{name}: {stderr}");
    }
}
