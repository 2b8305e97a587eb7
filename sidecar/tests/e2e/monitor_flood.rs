//! Floods, slow commands, and many at once. `cargo xtask soak` runs them as long as they are specified.

use std::time::{Duration, SystemTime};

use agentvm_sdk::plugin::{
    PluginHost,
    monitor::{MonitorSpec, MonitorState, MonitorStream},
};

use crate::{
    monitor::{ended, events_until, host, lasting, start, status, stop, take},
    support::{DEADLINE, apart, memory_kib, no_process_has_argument, tree, until, vm, within},
};

/// Runs these as long as they are specified.
const SOAK: &str = "AGENTVM_SOAK_MONITORS";

/// One of the two.
pub(crate) fn soak_or_gate<T>(soak: T, gate: T) -> T {
    if std::env::var_os(SOAK).is_some() { soak } else { gate }
}

/// What memory may grow by at any time, for one flood: its rings, its events, and what is being returned.
const SLACK_KIB: u64 = 32 << 10;

/// Events of one monitor as they are taken: how many came, and how many are told to be gone.
#[derive(Default)]
struct Taken {
    events: u64,
    dropped: u64,
    last: String,
}

impl Taken {
    async fn take(&mut self, host: &PluginHost, id: &str) {
        let batch = take(host).await;
        self.dropped += batch.dropped.get(id).copied().unwrap_or(0);
        for event in batch.events.into_iter().filter(|event| event.monitor_id == id) {
            let gap = event.stream == MonitorStream::Lifecycle && event.message.ends_with(" events dropped");
            self.events += u64::from(!gap);
            self.last = event.message;
        }
    }

    async fn all(host: &PluginHost, id: &str, mut look: impl FnMut()) -> Self {
        let (mut taken, mut polls) = (Self::default(), tokio::time::interval(Duration::from_millis(100)));
        while status(host, id).await.state == MonitorState::Running {
            polls.tick().await;
            taken.take(host, id).await;
            look();
        }
        taken.take(host, id).await;
        taken
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn c77_a_flood_is_bounded_in_memory_and_counted_exactly() {
    let name = "monitor_flood::c77_a_flood_is_bounded_in_memory_and_counted_exactly";
    if !apart(name, DEADLINE).await {
        return;
    }
    let vm = vm().await;
    let host = host(&vm).await;
    let sidecar = vm.sidecar().pid().unwrap();
    let memory = || {
        let processes = tree(sidecar).into_iter();
        (memory_kib(std::process::id()), processes.map(memory_kib).sum::<u64>())
    };
    start(&host, MonitorSpec::new("warm", "seq 1 200000")).await;
    Taken::all(&host, "warm", || ()).await;
    let (before, mut most) = (memory(), (0, 0));
    let mut spec = MonitorSpec::new("flood", "yes");
    spec.timeout_ms = soak_or_gate(10_000, 2000);
    start(&host, spec).await;
    let taken = Taken::all(&host, "flood", || {
        let (client, sidecar) = memory();
        most = (most.0.max(client), most.1.max(sidecar));
    })
    .await;
    let status = status(&host, "flood").await;
    println!("{} lines: {} taken, {} dropped", status.event_count - 1, taken.events - 1, taken.dropped);
    println!(
        "client: {} KiB, at most {} KiB; sidecar: {} KiB, at most {} KiB",
        before.0, most.0, before.1, most.1
    );
    assert_eq!((taken.events + taken.dropped, taken.dropped), (status.event_count, status.dropped_count));
    assert!(taken.last.starts_with("Monitor timed out after "), "{}", taken.last);
    assert!(taken.dropped > 0, "it was no flood");
    assert!(most.0 <= before.0 + SLACK_KIB && most.1 <= before.1 + SLACK_KIB);
    no_process_has_argument(&vm, "yes").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn c77_every_line_of_a_burst_is_taken_or_counted() {
    let vm = vm().await;
    let host = host(&vm).await;
    start(&host, MonitorSpec::new("burst", "seq 1 200000")).await;
    let taken = Taken::all(&host, "burst", || ()).await;
    assert_eq!(taken.events + taken.dropped, 200_001);
    assert_eq!(taken.last, "Monitor exited");
    let wake = take(&host).await.wakes.remove(0);
    let lines = wake.text.lines().count() as u64 - 1;
    assert_eq!((lines, wake.dropped), (100, 200_001 - 100));
    assert!(wake.text.ends_with("\n199999\n200000\nMonitor exited"), "{}", wake.text);
}

/// In the soak, which runs one test at a time, the time that is promised; beside others one that tells of being held up.
#[tokio::test]
async fn c77_a_slow_line_is_not_held_up() {
    let (limit, lines, pause) =
        soak_or_gate((Duration::from_millis(500), 30, "1"), (Duration::from_secs(5), 15, "0.2"));
    let vm = vm().await;
    let host = host(&vm).await;
    start(&host, lasting("slow", &format!("while :; do date +%s%N; sleep {pause}; done"))).await;
    let mut late = Vec::new();
    events_until(&host, |event| {
        let written = Duration::from_nanos(event.message.parse().unwrap());
        #[expect(clippy::disallowed_methods, reason = "the guest told when by the same clock")]
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        late.push(now.saturating_sub(written));
        late.len() == lines
    })
    .await;
    late.sort_unstable();
    println!("a line after {:?} in the middle, {:?} at most", late[lines / 2], late[lines - 1]);
    assert!(late[lines - 1] <= limit, "{late:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_monitors_at_once_each_have_all_that_is_theirs() {
    const MONITORS: i32 = 100;
    let vm = vm().await;
    let host = host(&vm).await;
    for n in 0..MONITORS {
        let command = format!("seq 1 {n}; echo error >&2; exit {}", n % 3);
        start(&host, MonitorSpec::new(format!("m{n}"), command)).await;
    }
    start(&host, lasting("flood", "yes")).await;
    for n in 0..MONITORS {
        let status = ended(&host, &format!("m{n}")).await;
        assert_eq!(status.last_exit_status, Some(n % 3));
        assert_eq!(status.event_count, u64::try_from(n).unwrap() + 2);
        assert_eq!(status.dropped_count, 0, "the flood costs nobody else an event");
    }
    let batch = take(&host).await;
    for n in 0..MONITORS {
        let id = format!("m{n}");
        let of = |stream| batch.events.iter().filter(move |event| event.stream == stream);
        let lines = of(MonitorStream::Stdout).filter(|event| event.monitor_id == id);
        assert!(lines.map(|event| event.message.clone()).eq((1..=n).map(|line| line.to_string())), "{id}");
        assert_eq!(of(MonitorStream::Lifecycle).filter(|event| event.monitor_id == id).count(), 1, "{id}");
    }
    assert_eq!(batch.active_count, 1);
    stop(&host, "flood").await;
    until("only init is left", DEADLINE, || async {
        let table = within(vm.all_processes()).await.unwrap();
        table.iter().filter(|row| row.exit_code.is_none()).count() == 1
    })
    .await;
}
