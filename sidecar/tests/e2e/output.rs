//! Output as it is read: exact bytes, whole characters, late, in pages, both streams together.

use agentvm_sdk::{ExecOptions, Output, OutputState, OutputStream, SpawnOptions};
use tokio::io::{AsyncBufReadExt as _, BufReader};

use crate::support::{DEADLINE, out, said, sh, spawn, until, vm, within};

#[tokio::test]
async fn c07_output_is_whole_and_the_code_right_whatever_ends_first() {
    let vm = vm().await;
    let result = sh(&vm, "echo one; sleep 0.1; echo two; exit 4").await;
    assert_eq!((&*result.stdout, result.exit_code), ("one\ntwo\n", 4));
    let result = sh(&vm, "echo one; exec >&- 2>&-; sleep 0.1; exit 4").await;
    assert_eq!((&*result.stdout, result.exit_code), ("one\n", 4));
}

#[tokio::test]
async fn c26_no_byte_but_the_programs_own_is_in_its_input_and_output() {
    let vm = vm().await;
    let cat = vm.spawn("cat", [""; 0], SpawnOptions::new()).unwrap();
    cat.write_stdin("say hi\n").unwrap();
    cat.close_stdin();
    assert_eq!(within(cat.stdout().collect()).await.unwrap(), b"say hi\n");
    assert_eq!(within(cat.stderr().collect()).await.unwrap(), b"");
    let shell = "cat /proc/$$/cmdline | tr '\\0' ' '";
    assert_eq!(out(&vm, shell).await, format!("sh -c {shell} "));
}

#[tokio::test]
async fn c31_a_subscriber_that_leaves_at_once_stops_nobody() {
    let vm = vm().await;
    let process = spawn(&vm, "head -c 2000000 /dev/zero; touch /tmp/done1");
    drop(process.stdout());
    assert_eq!(within(process.wait()).await.unwrap().code, 0);
    out(&vm, "test -e /tmp/done1").await;
    let page = process.read_output(OutputStream::Stdout, 0, usize::MAX);
    assert_eq!(page.received, 2_000_000);
    assert_eq!(page.gone, Some(0..page.offset));
    assert_eq!(page.next_offset(), page.received);
}

#[tokio::test]
async fn c32_a_character_split_over_writes_is_one_character() {
    let vm = vm().await;
    let split = "printf '\\342'; sleep .02; printf '\\234'; sleep .02; printf '\\223'";
    assert_eq!(out(&vm, split).await, "\u{2713}");
    let partial = "printf 'ok\\342\\234'";
    assert_eq!(out(&vm, partial).await, "ok\u{fffd}");
    let bytes = within(vm.exec_bytes(partial, ExecOptions::new())).await.unwrap();
    assert_eq!(&bytes.stdout[..], b"ok\xe2\x9c");
}

#[tokio::test]
async fn c34_a_line_of_ten_megabytes_is_only_a_long_line() {
    let vm = vm().await;
    let result = sh(&vm, "head -c 10485760 /dev/zero | tr '\\0' x").await;
    assert_eq!((result.exit_code, result.stdout.len()), (0, 10_485_760));
    assert!(result.stdout.bytes().all(|byte| byte == b'x'));
}

#[tokio::test]
async fn both_outputs_are_read_together_in_the_order_they_came() {
    let vm = vm().await;
    // Each waits until the one before was seen.
    let script = "echo a; read _; echo b >&2; read _; echo c; read _; echo d >&2; exit 3";
    let process = spawn(&vm, script);
    let mut events = process.output();
    let mut seen = Vec::new();
    while let Some(event) = within(events.next()).await {
        let event = event.unwrap();
        let Output::Data(bytes) = event.output else { panic!("nothing is missing") };
        seen.push((event.stream, String::from_utf8(bytes.to_vec()).unwrap()));
        // The last of them reads no more.
        let _ = process.write_stdin("\n");
    }
    let of = |stream, text: &str| (stream, format!("{text}\n"));
    let expected = [
        of(OutputStream::Stdout, "a"),
        of(OutputStream::Stderr, "b"),
        of(OutputStream::Stdout, "c"),
        of(OutputStream::Stderr, "d"),
    ];
    assert_eq!(seen, expected);
    assert_eq!(within(process.wait()).await.unwrap().code, 3);
    let mut late = process.output();
    let first = within(late.next()).await.unwrap().unwrap();
    assert_eq!((first.stream, first.offset), (OutputStream::Stdout, 0), "a late reader gets the same");
}

#[tokio::test]
async fn lines_are_read_like_a_files() {
    let vm = vm().await;
    let process = spawn(&vm, "seq 1 50000");
    let mut lines = BufReader::new(process.stdout().into_async_read()).lines();
    let mut count = 0;
    while let Some(line) = within(lines.next_line()).await.unwrap() {
        count += 1;
        assert_eq!(line, count.to_string());
    }
    assert_eq!(count, 50_000);
}

#[tokio::test]
async fn a_page_is_read_while_it_runs_and_after_it_has_ended() {
    let vm = vm().await;
    let process = spawn(&vm, "echo hello; read _; echo bye");
    said(&process, "hello").await;
    let page = vm.read_process_output(process.pid(), OutputStream::Stdout, 0, 3).unwrap();
    assert_eq!((&page.bytes[..], page.received, page.state), (&b"hel"[..], 6, OutputState::Open));
    process.close_stdin();
    within(process.wait()).await.unwrap();
    until("its streams have ended", DEADLINE, || async {
        process.read_output(OutputStream::Stdout, 0, 0).state == OutputState::Ended
    })
    .await;
    let rest = vm.read_process_output(process.pid(), OutputStream::Stdout, page.next_offset(), 100).unwrap();
    assert_eq!((&rest.bytes[..], rest.next_offset()), (&b"lo\nbye\n"[..], rest.received));
}
