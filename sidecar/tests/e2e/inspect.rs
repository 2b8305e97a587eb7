//! A closer look at one process: arguments, whole, and open descriptors.

use std::ffi::OsString;

use agentvm_sdk::{AgentOs, ClientError, FileAccess, FileKind, Process, SpawnOptions, wire::error::Code};

use crate::support::{said, vm, within};

/// A shell that runs, with these arguments behind its own.
async fn shell(vm: &AgentOs, script: &str, args: &[&str]) -> Process {
    let script = format!("{script}; echo up; read line");
    let process = vm.spawn("sh", [&["-c", &script, "_"], args].concat(), SpawnOptions::new()).unwrap();
    said(&process, "up").await;
    process
}

#[tokio::test]
async fn c65_arguments_are_read_whole_where_the_row_is_cut() {
    let vm = vm().await;
    let long = "x".repeat(100_000);
    let args =
        [&*long, "", "new\nline", "w x", &long, &long, &long, &long, &long, &long, &long, &long, &long, ""];
    let process = shell(&vm, ":", &args).await;
    let expected: Vec<OsString> =
        ["sh", "-c", ":; echo up; read line", "_"].iter().chain(&args).map(OsString::from).collect();
    assert_eq!(within(vm.read_process_cmdline(process.pid())).await.unwrap(), expected);
    let table = within(vm.all_processes()).await.unwrap();
    let row = table.iter().find(|row| row.pid == process.pid()).unwrap();
    assert!(row.args_truncated && row.args.len() < expected.len());

    process.close_stdin();
    within(process.wait()).await.unwrap();
    let ended = within(vm.read_process_cmdline(process.pid())).await.unwrap();
    assert_eq!(ended, expected, "as it was started");
}

#[tokio::test]
async fn any_process_of_the_table_can_be_looked_at_and_no_other() {
    let vm = vm().await;
    let process = shell(&vm, "sleep 600 & :", &[]).await;
    let table = within(vm.all_processes()).await.unwrap();
    let child = table.iter().find(|row| row.ppid == process.pid()).unwrap();
    let cmdline = within(vm.read_process_cmdline(child.pid)).await.unwrap();
    assert!(cmdline == ["sleep", "600"] || cmdline[0] == "sh", "{cmdline:?}");
    assert_eq!(within(vm.read_process_cmdline(1)).await.unwrap(), ["agentvm-init"]);

    let zero = within(vm.read_process_cmdline(0)).await.unwrap_err();
    assert_eq!(zero.code(), Code::INVALID_ARGUMENT);
    let failed = vm.spawn("no-such-cmd-zz", [""; 0], SpawnOptions::new()).unwrap();
    within(failed.wait()).await.unwrap_err();
    for pid in [999_999, 1_000_999, failed.pid(), 1_001_000_000, u32::MAX] {
        let cmdline = within(vm.read_process_cmdline(pid)).await.unwrap_err();
        assert!(matches!(cmdline, ClientError::ProcessNotFound(not) if not == pid), "{cmdline}");
        let handles = within(vm.read_process_file_handles(pid)).await.unwrap_err();
        assert!(matches!(handles, ClientError::ProcessNotFound(not) if not == pid), "{handles}");
    }
    within(vm.dispose()).await.unwrap();
    let late = within(vm.read_process_cmdline(1)).await.unwrap_err();
    assert!(matches!(late, ClientError::Disposed), "{late}");
}

#[tokio::test]
async fn open_descriptors_tell_what_they_are() {
    let vm = vm().await;
    let script = "exec 3<>'a (b) c' 4>>log 5</workspace 6</dev/null; echo hello >&3; echo x >gone; exec 7<gone; rm gone";
    let process = shell(&vm, script, &[]).await;
    let handles = within(vm.read_process_file_handles(process.pid())).await.unwrap();
    let told: Vec<_> = handles
        .iter()
        .map(|handle| (handle.fd, handle.kind, handle.access, handle.target.to_str().unwrap()))
        .collect();
    assert!(handles.is_sorted_by_key(|handle| handle.fd));
    assert!(told[0].3.starts_with("pipe:["), "{told:?}");
    assert_eq!((told[0].1, told[0].2), (FileKind::Pipe, FileAccess::Read));
    assert_eq!((told[1].1, told[1].2), (FileKind::Pipe, FileAccess::Write));
    let expected = [
        (3, FileKind::File, FileAccess::ReadWrite, "/workspace/a (b) c"),
        (4, FileKind::File, FileAccess::Write, "/workspace/log"),
        (5, FileKind::Directory, FileAccess::Read, "/workspace"),
        (6, FileKind::CharacterDevice, FileAccess::Read, "/dev/null"),
        (7, FileKind::File, FileAccess::Read, "/workspace/gone (deleted)"),
    ];
    assert_eq!(told[3..8], expected, "{told:?}");
    assert_eq!((handles[3].position_bytes, handles[3].append), (6, false));
    assert!(handles[4].append);
}

#[tokio::test]
async fn more_descriptors_than_a_page_holds_are_all_told() {
    const FILES: usize = 4000;
    let vm = vm().await;
    let folder = ["n".repeat(250), "n".repeat(250), "n".repeat(250)].join("/");
    let script = format!(
        "import os, sys\nos.makedirs('{folder}')\nos.chdir('{folder}')\n\
         files = [open('file', 'w') for _ in range({FILES})]\nprint('up', flush=True)\nsys.stdin.read()"
    );
    let process = vm.spawn("python3", ["-c", &script], SpawnOptions::new()).unwrap();
    said(&process, "up").await;
    let handles = within(vm.read_process_file_handles(process.pid())).await.unwrap();
    let files = handles.iter().filter(|handle| handle.kind == FileKind::File).count();
    assert_eq!(files, FILES);
    assert!(handles.windows(2).all(|pair| pair[0].fd < pair[1].fd));
}
