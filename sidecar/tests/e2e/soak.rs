//! Memory and speed over thousands of execs. Here 1000; `cargo xtask soak` runs 100 000, and has the
//! machine to itself, so that times mean something.

use std::time::{Duration, Instant};

use agentvm_sdk::ExecOptions;

use crate::support::{
    DEADLINE, OPENED_ONCE, apart, children, descriptors, inits, memory_kib, out, until, vm, within,
};

/// How many execs.
const EXECS: &str = "AGENTVM_SOAK_EXECS";
/// Unless it says otherwise.
const IN_THE_GATE: usize = 1000;
/// What memory may grow by: pages that an allocator keeps.
const SLACK_KIB: u64 = 512;

/// Memory of client and sidecar (with zygote and init), and how long one exec took.
struct Sample {
    client_kib: u64,
    sidecar_kib: u64,
    time: Duration,
}

fn part<T: Ord + Copy>(samples: &[Sample], of: fn(&Sample) -> T) -> T {
    let mut values: Vec<T> = samples.iter().map(of).collect();
    values.sort_unstable();
    // Of times the faster ones: what else runs on the machine only makes them longer.
    values[values.len() / 4]
}

#[tokio::test]
async fn memory_stays_flat_and_execs_stay_fast_over_thousands_of_them() {
    let name = "soak::memory_stays_flat_and_execs_stay_fast_over_thousands_of_them";
    // Other tests use memory too.
    if !apart(name, Duration::from_secs(4 * 3600)).await {
        return;
    }
    let wanted = std::env::var(EXECS).ok();
    let execs: usize = wanted.as_ref().map_or(IN_THE_GATE, |text| text.parse().unwrap());
    let vm = vm().await;
    let sidecar = vm.sidecar().pid().unwrap();
    let mut samples = Vec::with_capacity(execs);
    out(&vm, "true").await;
    // Who waits for the next start comes and goes.
    let lasting: Vec<u32> = std::iter::once(sidecar).chain(children(sidecar)).chain(inits(sidecar)).collect();
    let open = descriptors(sidecar);
    for n in 0..execs + execs / 10 {
        let begun = Instant::now();
        let result = within(vm.exec_argv("/bin/echo", ["some", "output"], ExecOptions::new())).await.unwrap();
        assert_eq!((result.exit_code, result.stdout.as_str()), (0, "some output\n"));
        let time = begun.elapsed();
        // The first tenth warms up.
        if n >= execs / 10 && n % 10 == 0 {
            let client_kib = memory_kib(std::process::id());
            let sidecar_kib = lasting.iter().copied().map(memory_kib).sum();
            samples.push(Sample { client_kib, sidecar_kib, time });
        }
    }
    until("descriptors are as before", DEADLINE, || async { descriptors(sidecar) <= open + OPENED_ONCE })
        .await;
    let table = within(vm.all_processes()).await.unwrap();
    assert_eq!(table.len(), 1, "only init: {table:#?}");

    let tenth = samples.len() / 10;
    let (first, last) = (&samples[..tenth], &samples[samples.len() - tenth..]);
    for (whose, of) in [
        ("client", (|sample| sample.client_kib) as fn(&Sample) -> u64),
        ("sidecar", |sample| sample.sidecar_kib),
    ] {
        let (before, after) = (part(first, of), part(last, of));
        println!("{whose}: {before} KiB, then {after} KiB");
        assert!(after <= before + before / 20 + SLACK_KIB, "{whose} grew from {before} to {after} KiB");
    }
    let (before, after) = (part(first, |sample| sample.time), part(last, |sample| sample.time));
    println!("an exec: {before:?}, then {after:?}");
    assert!(wanted.is_none() || after <= before * 2, "an exec took {before:?} and then {after:?}");
}
