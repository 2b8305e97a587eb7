//! Memory stays flat, on both sides, whatever a process writes and whoever does not read it.

use std::fs;

use agentvm_sdk::{AgentOs, OutputFrom, OutputStream, Overflow, Process, SpawnOptions};

use crate::support::{DEADLINE, out, until, vm, within};

const MIB: u64 = 1 << 20;

/// What a process has in memory of its own, `smaps_rollup`; shared pages count in part.
fn own_bytes(pid: u32) -> u64 {
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap();
    let pss = rollup.lines().find_map(|line| line.strip_prefix("Pss:")).unwrap();
    pss.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

/// How much the sidecar may grow: its buffers, not what passes through them.
const SIDECAR_BOUND: u64 = 24 * MIB;
/// The same for the client. Other tests run in this process.
const CLIENT_BOUND: u64 = 300 * MIB;

struct Before {
    sidecar: u32,
    bytes: [u64; 2],
}

impl Before {
    fn of(vm: &AgentOs) -> Self {
        let sidecar = vm.sidecar().pid().unwrap();
        Self { sidecar, bytes: [own_bytes(sidecar), own_bytes(std::process::id())] }
    }

    #[track_caller]
    fn is_flat(&self) {
        let grown = own_bytes(self.sidecar).saturating_sub(self.bytes[0]);
        assert!(grown < SIDECAR_BOUND, "the sidecar has grown by {grown} bytes");
        let grown = own_bytes(std::process::id()).saturating_sub(self.bytes[1]);
        assert!(grown < CLIENT_BOUND, "the client has grown by {grown} bytes");
    }
}

fn writer(vm: &AgentOs, bytes: u64) -> Process {
    vm.spawn("head", ["-c", &bytes.to_string(), "/dev/zero"], SpawnOptions::new()).unwrap()
}

#[tokio::test]
async fn d17_half_a_gigabyte_that_a_sleeping_reader_does_not_take_is_in_nobodys_memory() {
    const BYTES: u64 = 1 << 29;
    let vm = vm().await;
    out(&vm, "true").await;
    let before = Before::of(&vm);

    let held = writer(&vm, BYTES);
    let waiting = held.output_from(OutputStream::Stdout, OutputFrom::Start, Overflow::Wait);
    let passing = writer(&vm, BYTES);
    let asleep = passing.stdout();
    assert_eq!(within(passing.wait()).await.unwrap().code, 0);
    until("all of it has passed", DEADLINE, || async {
        passing.read_output(OutputStream::Stdout, BYTES, 1).received == BYTES
    })
    .await;
    before.is_flat();
    assert!(vm.get_process(held.pid()).unwrap().running);
    let kept = held.read_output(OutputStream::Stdout, 0, usize::MAX);
    // A window, and what came before anybody was there to wait.
    assert!(kept.received <= 1 << 20, "{} bytes were received", kept.received);
    drop((waiting, asleep));
    held.kill();
    within(held.wait()).await.unwrap();
}

#[tokio::test]
async fn input_that_nobody_reads_waits_where_it_was_written() {
    let vm = vm().await;
    out(&vm, "true").await;
    let before = Before::of(&vm);
    // The client has them once; a sleep reads nothing.
    let input = bytes(64 * MIB);
    let sleepers: Vec<_> = (0..20)
        .map(|_| {
            let process = vm.spawn("sleep", ["600"], SpawnOptions::new()).unwrap();
            process.write_stdin(input.clone()).unwrap();
            process
        })
        .collect();
    out(&vm, "true").await;
    before.is_flat();
    drop(sleepers);
}

fn bytes(len: u64) -> bytes::Bytes {
    vec![b'x'; usize::try_from(len).unwrap()].into()
}
