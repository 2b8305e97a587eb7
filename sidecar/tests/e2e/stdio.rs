//! Streams: back-pressure, gaps, standard input.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use agentvm_sdk::{
    AgentOs, AgentOsConfig, ClientError, ExecOptions, Output, OutputFrom, OutputStream, Overflow, Process,
    SpawnOptions,
};
use tokio::io::AsyncWriteExt as _;

use crate::support::{DEADLINE, out, sh, sidecar, until, vm, within};

/// A process that tells its real pid on standard error and then writes `bytes` zeros.
fn writer(vm: &AgentOs, bytes: u64) -> Process {
    let script = format!("echo $$ >&2; exec head -c {bytes} /dev/zero");
    vm.spawn("sh", ["-c", &script], SpawnOptions::new()).unwrap()
}

async fn real_pid(process: &Process) -> String {
    let mut stderr = process.stderr();
    match within(stderr.next()).await {
        Some(Ok(Output::Data(bytes))) => String::from_utf8(bytes.to_vec()).unwrap().trim().to_owned(),
        other => panic!("{other:?}"),
    }
}

/// Bytes a process has written so far, by its own accounting, proc(5).
async fn written(vm: &AgentOs, pid: &str) -> u64 {
    let io = out(vm, &format!("sed -n 's/^wchar: //p' /proc/{pid}/io")).await;
    io.trim().parse().unwrap()
}

#[tokio::test]
async fn d17_a_waiting_reader_that_sleeps_stops_the_process_at_window_plus_pipe() {
    const BYTES: u64 = 64 << 20;
    const WINDOW: u64 = 256 << 10;
    const PIPE: u64 = 64 << 10;
    let vm = vm().await;
    let process = writer(&vm, BYTES);
    let mut reader = process.output_from(OutputStream::Stdout, OutputFrom::Start, Overflow::Wait);
    let pid = real_pid(&process).await;
    // It has stopped once its state is "sleeping" in a write and nothing more is counted.
    until("the process is held up", DEADLINE, || async {
        let before = written(&vm, &pid).await;
        let state = out(&vm, &format!("cut -d' ' -f3 /proc/{pid}/stat")).await;
        state == "S\n" && before == written(&vm, &pid).await
    })
    .await;
    let counted = written(&vm, &pid).await;
    assert!((WINDOW..=WINDOW + PIPE + 64).contains(&counted), "{counted} bytes written");
    assert!(vm.get_process(process.pid()).unwrap().running);

    let mut total = 0;
    while let Some(output) = within(reader.next()).await {
        match output.unwrap() {
            Output::Data(bytes) => total += bytes.len() as u64,
            Output::Gap { missed_bytes } => panic!("{missed_bytes} bytes are missing"),
        }
    }
    assert_eq!(total, BYTES);
    assert_eq!(within(process.wait()).await.unwrap().code, 0);
}

#[tokio::test]
async fn d5_a_dropping_reader_that_sleeps_holds_nobody_up_and_gets_one_exact_gap() {
    const BYTES: u64 = 16 << 20;
    let vm = vm().await;
    let process = writer(&vm, BYTES);
    let mut reader = process.stdout();
    assert_eq!(within(process.wait()).await.unwrap().code, 0);
    let (mut data, mut gaps) = (0, Vec::new());
    while let Some(output) = within(reader.next()).await {
        match output.unwrap() {
            Output::Data(bytes) => data += bytes.len() as u64,
            Output::Gap { missed_bytes } => gaps.push(missed_bytes),
        }
    }
    assert_eq!(gaps.len(), 1, "{gaps:?}");
    assert_eq!(gaps[0] + data, BYTES);
    assert!(data <= 512 << 10, "{data} bytes were retained");
}

#[tokio::test]
async fn c31_a_process_nobody_reads_runs_to_its_end() {
    let vm = vm().await;
    let process =
        vm.spawn("sh", ["-c", "head -c 2000000 /dev/zero; touch /tmp/done1"], SpawnOptions::new()).unwrap();
    drop(process.stdout());
    assert_eq!(within(process.wait()).await.unwrap().code, 0);
    out(&vm, "test -e /tmp/done1").await;
}

#[tokio::test]
async fn a_waiting_reader_holds_the_exit_back_until_it_is_dropped() {
    let vm = vm().await;
    let process = vm.spawn("echo", ["hello"], SpawnOptions::new()).unwrap();
    let reader = process.output_from(OutputStream::Stdout, OutputFrom::Start, Overflow::Wait);
    // It is gone from the VM, and still its exit is not published.
    until("it has ended in the VM", DEADLINE, || async {
        let table = within(vm.all_processes()).await.unwrap();
        table.iter().any(|row| row.pid == process.pid() && row.exit_code == Some(0))
    })
    .await;
    assert!(vm.get_process(process.pid()).unwrap().running);
    drop(reader);
    assert_eq!(within(process.wait()).await.unwrap().code, 0);
}

#[tokio::test]
async fn d16_one_large_write_arrives_whole() {
    let vm = vm().await;
    let process = vm.spawn("sha256sum", [""; 0], SpawnOptions::new()).unwrap();
    let input: Vec<u8> = (0..24 << 20).map(|i: u32| u8::try_from(i % 253).unwrap()).collect();
    process.write_stdin(input).unwrap();
    process.close_stdin();
    assert_eq!(within(process.wait()).await.unwrap().code, 0);
    let sum = String::from_utf8(within(process.stdout().collect()).await.unwrap()).unwrap();
    let script = "python3 -c \"import hashlib; \
                  print(hashlib.sha256((bytes(range(253)) * ((24 << 20) // 253 + 1))[:24 << 20]).hexdigest())\"";
    assert_eq!(sum.split(' ').next(), out(&vm, script).await.lines().next());
}

#[tokio::test]
async fn c19_a_child_that_never_reads_its_input_keeps_its_exit_code() {
    let vm = vm().await;
    let input = vec![0; 32 << 20];
    let process = vm.spawn("sh", ["-c", "exit 7"], SpawnOptions::new()).unwrap();
    // It may have ended by now.
    assert!(matches!(process.write_stdin(input), Ok(()) | Err(ClientError::StdinClosed)));
    process.close_stdin();
    assert_eq!(within(process.wait()).await.unwrap().code, 7);
    assert!(matches!(process.write_stdin("more"), Err(ClientError::StdinClosed)));
    assert_eq!(sh(&vm, "exit 9").await.exit_code, 9);
}

#[tokio::test]
async fn c23_an_empty_write_is_nothing_and_only_close_ends_input() {
    let vm = vm().await;
    let process = vm.spawn("cat", [""; 0], SpawnOptions::new()).unwrap();
    for text in ["", "x", "", "y"] {
        process.write_stdin(text).unwrap();
    }
    process.close_stdin();
    process.close_stdin();
    assert_eq!(within(process.stdout().collect()).await.unwrap(), b"xy");
    assert_eq!(within(process.wait()).await.unwrap().code, 0);
}

#[tokio::test]
async fn c25_input_stays_open_between_writes() {
    let vm = vm().await;
    let script = "for i in 1 2 3; do read line; echo got $line; done";
    let process = vm.spawn("sh", ["-c", script], SpawnOptions::new()).unwrap();
    let mut stream = process.stdout();
    for line in ["a", "b", "c"] {
        process.write_stdin(format!("{line}\n")).unwrap();
        let Some(Ok(Output::Data(bytes))) = within(stream.next()).await else { panic!("no answer") };
        assert_eq!(bytes, format!("got {line}\n"));
    }
    assert_eq!(within(process.wait()).await.unwrap().code, 0);
}

#[tokio::test]
async fn a_full_stdin_queue_refuses_a_write_whole_and_the_async_writer_waits() {
    let vm = vm().await;
    let process = vm.spawn("sh", ["-c", "read go; cat | wc -c"], SpawnOptions::new()).unwrap();
    let mut refused = 0;
    let mut taken = 0_u64;
    for _ in 0..40 {
        match process.write_stdin(vec![b'x'; 100_000]) {
            Ok(()) => taken += 100_000,
            Err(ClientError::StdinFull { queued, limit }) => {
                assert!(queued + 100_000 > limit && limit == 1 << 20);
                refused += 1;
            }
            Err(other) => panic!("{other:?}"),
        }
    }
    assert!(refused > 0);
    let mut stdin = process.stdin();
    let feed = async {
        stdin.write_all(b"\n").await.unwrap();
        stdin.write_all(&vec![b'y'; 5 << 20]).await.unwrap();
        stdin.shutdown().await.unwrap();
    };
    within(feed).await;
    let total = String::from_utf8(within(process.stdout().collect()).await.unwrap()).unwrap();
    // `read` took the first line: everything up to and with the newline.
    assert_eq!(total.trim(), (5_u64 << 20).to_string(), "after {taken} bytes for read");
}

#[tokio::test]
async fn an_endless_exec_leaves_its_neighbours_in_one_task_their_turn() {
    let vm = vm().await;
    let seen = std::cell::Cell::new(0_u32);
    let endless = vm.exec("yes", ExecOptions::new().capture_stdio(false));
    let neighbour = async {
        while seen.get() < 1000 {
            seen.set(seen.get() + 1);
            tokio::task::yield_now().await;
        }
    };
    within(async {
        tokio::select! {
            biased;
            result = endless => panic!("{result:?}"),
            () = neighbour => {}
        }
    })
    .await;
}

#[tokio::test]
async fn a_flood_does_not_keep_others_waiting() {
    let vm = vm().await;
    let flood = vm.spawn("yes", [""; 0], SpawnOptions::new()).unwrap();
    let limit = Duration::from_secs(1);
    for _ in 0..20 {
        let begun = std::time::Instant::now();
        assert_eq!(out(&vm, "echo quick").await, "quick\n");
        assert!(begun.elapsed() < limit, "{:?}", begun.elapsed());
    }
    flood.kill();
    assert_eq!(within(flood.wait()).await.unwrap().code, 137);
}

#[tokio::test]
async fn a_descendant_that_reads_the_output_pipe_itself_holds_no_exit_up() {
    let vm = vm().await;
    // It opens the pipe for reading, and takes what is in there when the process has ended.
    let script = "(exec 3</proc/self/fd/1; echo up >&2; while kill -0 $$ 2>/dev/null; do :; done; \
                  cat <&3 >/dev/null; sleep 600) & read go; head -c 266144 /dev/zero; exit 3";
    for _ in 0..5 {
        let process = vm.spawn("sh", ["-c", script], SpawnOptions::new()).unwrap();
        let mut unread = process.output_from(OutputStream::Stdout, OutputFrom::Start, Overflow::Wait);
        let up = within(process.stderr().next()).await.unwrap().unwrap();
        assert_eq!(up, Output::Data("up\n".into()));
        process.write_stdin("go\n").unwrap();
        until("the process has ended in the VM", DEADLINE, || async {
            let table = within(vm.all_processes()).await.unwrap();
            table.iter().any(|row| row.pid == process.pid() && row.exit_code == Some(3))
        })
        .await;
        let mut taken = 0;
        let read = async {
            while let Some(output) = unread.next().await {
                let Output::Data(bytes) = output.unwrap() else { panic!("a gap") };
                taken += bytes.len() as u64;
            }
        };
        let status = tokio::select! {
            status = within(process.wait()) => status.unwrap(),
            () = read => panic!("the descendant has not ended"),
        };
        assert_eq!(status.code, 3);
        // All but what may still have been in the pipe.
        assert!(taken >= 266_144 - (64 << 10), "{taken}");
    }
}

/// How often the callbacks of the two outputs were called, and the bytes of the second.
#[derive(Clone, Default)]
struct Calls(Arc<Mutex<(u64, u64, usize)>>);

impl Calls {
    /// Takes its time: there is always more when it returns.
    fn flooded(&self) -> impl FnMut(&[u8]) + Send + 'static {
        let Self(calls) = self.clone();
        move |_| {
            std::thread::sleep(Duration::from_millis(10));
            calls.lock().unwrap().0 += 1;
        }
    }

    fn other(&self) -> impl FnMut(&[u8]) + Send + 'static {
        let Self(calls) = self.clone();
        move |bytes| {
            let mut calls = calls.lock().unwrap();
            (calls.1, calls.2) = (calls.1 + 1, calls.2 + bytes.len());
        }
    }

    /// The two took turns, where both had something, and nothing of the second is missing.
    fn were_fair(&self) {
        let (flooded, other, bytes) = *self.0.lock().unwrap();
        assert_eq!(bytes, 1_000_000);
        assert!(flooded < 20 * other, "{flooded} calls for {other}");
    }
}

/// Floods one output until the other has been taken whole.
const FLOODS_STDOUT: &str = "yes & head -c 1000000 /dev/zero >&2; kill $!; wait";

#[tokio::test]
async fn c20_an_exec_that_is_flooded_on_one_output_takes_the_other_too() {
    let vm = vm().await;
    let options = || ExecOptions::new().capture_stdio(false);
    let calls = Calls::default();
    let callbacks = options().on_stdout(calls.flooded()).on_stderr(calls.other());
    assert_eq!(within(vm.exec(FLOODS_STDOUT, callbacks)).await.unwrap().exit_code, 0);
    calls.were_fair();
    let calls = Calls::default();
    let floods_stderr = format!("exec 3>&1 1>&2 2>&3; {FLOODS_STDOUT}");
    let callbacks = options().on_stdout(calls.other()).on_stderr(calls.flooded());
    assert_eq!(within(vm.exec(&floods_stderr, callbacks)).await.unwrap().exit_code, 0);
    calls.were_fair();
}

#[tokio::test]
async fn c20_callbacks_of_a_process_that_floods_one_output_see_the_other_too() {
    let vm = vm().await;
    let calls = Calls::default();
    let options = SpawnOptions::new().on_stdout(calls.flooded()).on_stderr(calls.other());
    let process = vm.spawn("sh", ["-c", FLOODS_STDOUT], options).unwrap();
    assert_eq!(within(process.wait()).await.unwrap().code, 0);
    calls.were_fair();
}

#[tokio::test]
async fn what_is_in_flight_is_bounded_over_all_processes_and_every_one_still_gets_all_it_wrote() {
    const PROCESSES: usize = 100;
    const FULL: usize = (64 << 20) / (3 * (256 << 10));
    const BYTES: u64 = 1 << 20;
    let vm = vm().await;
    let processes: Vec<_> = (0..PROCESSES)
        .map(|_| {
            let process = writer(&vm, BYTES);
            let reader = process.output_from(OutputStream::Stdout, OutputFrom::Start, Overflow::Wait);
            (process, reader)
        })
        .collect();
    // Held up by the window, whatever it is: what has arrived is all of it.
    let arrived = |process: &Process| process.read_output(OutputStream::Stdout, 0, 0).received;
    for (at, (process, _)) in processes.iter().enumerate() {
        let window = if at < FULL { 256 << 10 } else { 16 << 10 };
        until("the window is full", DEADLINE, || async { arrived(process) >= window }).await;
        assert_eq!(arrived(process), window, "process {at}");
    }
    for (process, mut reader) in processes {
        let mut total = 0;
        while let Some(output) = within(reader.next()).await {
            let Output::Data(bytes) = output.unwrap() else { panic!("a gap") };
            total += bytes.len() as u64;
        }
        assert_eq!(total, BYTES);
        assert_eq!(within(process.wait()).await.unwrap().code, 0);
    }
    let next = writer(&vm, BYTES);
    let mut reader = next.output_from(OutputStream::Stdout, OutputFrom::Start, Overflow::Wait);
    until("windows are full again", DEADLINE, || async { arrived(&next) == 256 << 10 }).await;
    within(reader.next()).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_vm_that_is_disposed_of_makes_room_for_the_windows_of_another_at_once() {
    let sidecar = sidecar().await;
    for _ in 0..5 {
        let config = AgentOsConfig::new().connection(sidecar.clone());
        let vm = within(AgentOs::create(config)).await.unwrap();
        let sleepers: Vec<_> =
            (0..85).map(|_| vm.spawn("sleep", ["600"], SpawnOptions::new()).unwrap()).collect();
        let other = within(AgentOs::create(AgentOsConfig::new().connection(sidecar.clone()))).await.unwrap();
        drop(vm);
        // Each would be refused while the others' windows count.
        let echoes: Vec<_> =
            (0..85).map(|_| other.spawn("true", [""; 0], SpawnOptions::new()).unwrap()).collect();
        for process in echoes {
            assert_eq!(within(process.wait()).await.unwrap().code, 0);
        }
        drop(sleepers);
    }
}
