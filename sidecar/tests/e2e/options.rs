//! Options of `exec` and `spawn`: each does what it says, or is refused by name.

use std::{
    ffi::{OsStr, OsString},
    io::{Read as _, Write as _},
    os::{fd::OwnedFd, unix::ffi::OsStrExt as _},
    process::{Command, Stdio as Own},
};

use agentvm_sdk::{AgentOs, ClientError, ExecOptions, SpawnOptions, Stdio, TimingMitigation};

use crate::support::{out, program, vm, within};

fn rejected(error: &ClientError) -> (&str, Option<&str>) {
    let ClientError::Rejected(rejection) = error else { panic!("{error:?}") };
    (rejection.code.as_str(), rejection.details.field.as_deref())
}

#[tokio::test]
async fn no_path_and_no_program_of_the_guest_decides_which_shell_runs_a_command_line() {
    let vm = vm().await;
    out(
        &vm,
        "mkdir -p /workspace/bin; printf '#!/bin/true\\n' > /workspace/bin/sh; chmod +x /workspace/bin/sh",
    )
    .await;
    for path in ["/nope", "", "/workspace/bin", "/workspace/bin:/usr/bin:/bin"] {
        let options = ExecOptions::new().env("PATH", path).cwd("/workspace/bin");
        let result = within(vm.exec("echo \"$0 runs\"", options)).await.unwrap();
        assert_eq!((result.exit_code, result.stdout.as_str()), (0, "sh runs\n"), "{path:?}");
    }
    // A program that is named is still looked for where the call says.
    let options = ExecOptions::new().env("PATH", "/workspace/bin");
    let result = within(vm.exec_argv("sh", ["-c", "echo no"], options)).await.unwrap();
    assert_eq!((result.exit_code, result.stdout.as_str()), (0, ""));
}

#[tokio::test]
async fn d23_file_path_runs_a_script_by_its_first_line_or_with_a_shell() {
    let vm = vm().await;
    out(
        &vm,
        "cd /workspace; printf '#!/usr/bin/env -S sh -e\\necho by-env \"$@\"\\n' > env; \
         printf '#! /bin/sh -e \\nfalse\\necho not reached\\n' > strict; \
         printf 'echo \"plain $0\" \"$@\"\\n' > plain; printf '#!/no/such\\n' > lost; mkdir folder; \
         cp env 'x y'; chmod +x 'x y'; cp plain executable; chmod +x executable",
    )
    .await;
    let script = |path: &str, args: &[&str]| {
        let options = ExecOptions::new().file_path(path);
        let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
        within(vm.exec_argv("", args, options))
    };
    let ran = async |path: &str, args: &[&str]| {
        let result = script(path, args).await.unwrap();
        (result.exit_code, result.stdout)
    };
    for path in ["/workspace/env", "env", "/workspace/x y"] {
        assert_eq!(ran(path, &["a b", ""]).await, (0, "by-env a b \n".to_owned()), "{path}");
    }
    assert_eq!(ran("strict", &[]).await, (1, String::new()), "the one argument of the line counts");
    assert_eq!(ran("plain", &["1", "2"]).await, (0, "plain plain 1 2\n".to_owned()));
    assert_eq!(ran("./executable", &[]).await, (0, "plain ./executable\n".to_owned()));
    assert_eq!(ran("/bin/echo", &["programs", "too"]).await, (0, "programs too\n".to_owned()));
    for (path, code) in [("missing", "ENOENT"), ("lost", "ENOENT"), ("folder", "EACCES")] {
        let error = script(path, &[]).await.unwrap_err();
        let ClientError::SpawnFailed { code: found, message, .. } = &error else { panic!("{error:?}") };
        assert_eq!(found.as_str(), code, "{message}");
        assert!(message.contains(path), "{message}");
    }
    let result = within(vm.exec("", ExecOptions::new().file_path("/workspace/plain"))).await.unwrap();
    assert_eq!(result.stdout, "plain /workspace/plain\n");
    let error = within(vm.exec("echo both", ExecOptions::new().file_path("plain"))).await.unwrap_err();
    assert_eq!(rejected(&error), ("invalid_argument", Some("file_path")));
}

#[tokio::test]
async fn d23_clocks_that_cannot_be_frozen_are_not_pretended_to_be() {
    let vm = vm().await;
    let frozen = ExecOptions::new().timing_mitigation(TimingMitigation::Freeze);
    let error = within(vm.exec("date", frozen)).await.unwrap_err();
    assert_eq!(rejected(&error), ("unsupported", Some("timing_mitigation")));
    let off = ExecOptions::new().timing_mitigation(TimingMitigation::Off);
    assert_eq!(within(vm.exec("echo on", off)).await.unwrap().stdout, "on\n");
}

#[tokio::test]
async fn programs_arguments_and_folders_need_not_be_utf8() {
    let vm = vm().await;
    let odd = OsStr::from_bytes(b"caf\xe9");
    out(&vm, "d=$(printf 'caf\\351'); mkdir \"$d\"; cp /bin/echo \"$d/$d\"; cp /bin/pwd \"$d/pwd\"").await;
    let program = OsStr::from_bytes(b"/workspace/caf\xe9/caf\xe9");
    let arg = OsStr::from_bytes(b"\xff\xfe");
    let result = within(vm.exec_argv_os(program, [odd, arg], ExecOptions::new())).await.unwrap();
    assert_eq!(&*result.stdout, b"caf\xe9 \xff\xfe\n");

    let cwd: OsString = OsStr::from_bytes(b"/workspace/caf\xe9").to_owned();
    let options = ExecOptions::new().cwd(cwd.clone());
    let result = within(vm.exec_argv_bytes("./pwd", [""; 0], options)).await.unwrap();
    assert_eq!(&*result.stdout, b"/workspace/caf\xe9\n");

    let process = vm.spawn_os(program, [arg], SpawnOptions::new().cwd(cwd)).unwrap();
    assert_eq!(within(process.stdout().collect()).await.unwrap(), b"\xff\xfe\n");
    assert_eq!(within(process.wait()).await.unwrap().code, 0);
}

#[tokio::test]
async fn without_streamed_standard_input_it_is_at_its_end_at_once() {
    let vm = vm().await;
    let process = vm.spawn("cat", [""; 0], SpawnOptions::new().stream_stdin(false)).unwrap();
    assert!(matches!(process.write_stdin("x"), Err(ClientError::StdinClosed)));
    process.close_stdin();
    assert_eq!(within(process.wait()).await.unwrap().code, 0);
    let (given, _writer) = std::io::pipe().unwrap();
    let options = SpawnOptions::new().stream_stdin(false).stdin_fd(given.into());
    let error = vm.spawn("cat", [""; 0], options).unwrap_err();
    assert_eq!(rejected(&error), ("invalid_argument", Some("stream_stdin")));
}

/// Both ends of a pipe: what the process is given, and what the test keeps.
fn pipe() -> (OwnedFd, std::io::PipeReader) {
    let (reader, writer) = std::io::pipe().unwrap();
    (writer.into(), reader)
}

#[tokio::test]
async fn descriptors_are_relayed_whole_and_their_ends_too() {
    let vm = vm().await;
    let (input, mut feed) = std::io::pipe().unwrap();
    let ((stdout_fd, mut stdout), (stderr_fd, mut stderr)) = (pipe(), pipe());
    let options = SpawnOptions::new().stdin_fd(input.into()).stdout_fd(stdout_fd).stderr_fd(stderr_fd);
    let process = vm.spawn("sh", ["-c", "tee /dev/stderr"], options).unwrap();
    let bytes: Vec<u8> = (0..3u32 << 20).map(|i| u8::try_from(i % 251).unwrap()).collect();
    let input_bytes = bytes.clone();
    let feeder = std::thread::spawn(move || feed.write_all(&input_bytes).unwrap());
    let read = |mut from: Box<dyn std::io::Read + Send>| {
        std::thread::spawn(move || {
            let mut all = Vec::new();
            from.read_to_end(&mut all).unwrap();
            all
        })
    };
    let readers = [
        read(Box::new(stdout.by_ref().try_clone().unwrap())),
        read(Box::new(stderr.by_ref().try_clone().unwrap())),
    ];
    assert_eq!(within(process.wait()).await.unwrap().code, 0);
    feeder.join().unwrap();
    for reader in readers {
        // The relay has closed its end: nothing follows the process's last byte.
        let all = within(tokio::task::spawn_blocking(move || reader.join().unwrap())).await.unwrap();
        assert!(all == bytes, "{} bytes", all.len());
    }
}

#[tokio::test]
async fn d25_a_panicking_callback_does_not_take_the_descriptor_beside_it_along() {
    let vm = vm().await;
    let (descriptor, mut reader) = pipe();
    let options = SpawnOptions::new().stdout_fd(descriptor).on_stdout(|_| panic!("on purpose"));
    let process = vm.spawn("sh", ["-c", "echo one; read go; echo two"], options).unwrap();
    let mut text = [0; 8];
    reader.read_exact(&mut text[..4]).unwrap();
    process.write_stdin("go\n").unwrap();
    assert_eq!(within(process.wait()).await.unwrap().code, 0);
    reader.read_exact(&mut text[4..]).unwrap();
    assert_eq!(&text, b"one\ntwo\n");
}

#[tokio::test]
async fn a_relayed_reader_that_has_gone_and_an_input_that_never_comes_hold_nobody_up() {
    let vm = vm().await;
    let (input, _silent) = std::io::pipe().unwrap();
    let (stdout_fd, gone) = pipe();
    drop(gone);
    let options = SpawnOptions::new().stdin_fd(input.into()).stdout_fd(stdout_fd);
    let process = vm.spawn("sh", ["-c", "head -c 1000000 /dev/zero; exit 6"], options).unwrap();
    assert_eq!(within(process.wait()).await.unwrap().code, 6);
}

#[tokio::test]
async fn c20_a_descriptor_that_takes_nothing_holds_only_its_own_output_up() {
    let vm = vm().await;
    let ((stdout_fd, unread), (stderr_fd, mut stderr)) = (pipe(), pipe());
    let options = SpawnOptions::new().stdout_fd(stdout_fd).stderr_fd(stderr_fd);
    let script = "yes & head -c 1000000 /dev/zero >&2; kill $!; exec 2>&-; wait";
    let process = vm.spawn("sh", ["-c", script], options).unwrap();
    let read = tokio::task::spawn_blocking(move || {
        let mut all = Vec::new();
        stderr.read_to_end(&mut all).unwrap();
        all.len()
    });
    assert_eq!(within(read).await.unwrap(), 1_000_000);
    drop(unread);
    assert_eq!(within(process.wait()).await.unwrap().code, 0);
}

/// This test's own executable, started again as a program that inherits.
const INHERITS: &str = "AGENTVM_TEST_INHERITS";

#[tokio::test]
async fn inherited_streams_are_this_programs_own() {
    if std::env::var_os(INHERITS).is_some() {
        let vm = vm().await;
        let options = SpawnOptions::new().stdio(Stdio::Inherit);
        let process = vm.spawn("sh", ["-c", "sed 's/^/guest: /'; echo oops >&2; exit 9"], options).unwrap();
        std::process::exit(within(process.wait()).await.unwrap().code);
    }
    let name = "options::inherited_streams_are_this_programs_own";
    let mut inheriting = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(INHERITS, "1")
        .env("AGENTVM_TEST_BIN_DIR", program("agentvm-sidecar").parent().unwrap())
        .stdin(Own::piped())
        .stdout(Own::piped())
        .stderr(Own::piped())
        .spawn()
        .unwrap();
    inheriting.stdin.take().unwrap().write_all(b"one\ntwo\n").unwrap();
    let output =
        within(tokio::task::spawn_blocking(move || inheriting.wait_with_output().unwrap())).await.unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(9), "{out}{err}");
    assert!(out.contains("guest: one\nguest: two\n"), "{out}");
    assert!(err.contains("oops\n"), "{err}");
}

#[tokio::test]
async fn c14_a_missing_vm_is_an_error_and_never_an_exit_code() {
    let vm: AgentOs = vm().await;
    assert_eq!(within(vm.exec("grep -q needle /dev/null", ExecOptions::new())).await.unwrap().exit_code, 1);
    within(vm.dispose()).await.unwrap();
    let error = within(vm.exec("true", ExecOptions::new())).await.unwrap_err();
    assert!(matches!(error, ClientError::Disposed), "{error:?}");
}
