//! No wake is lost, whatever the agent does with what it gets.

use std::future::poll_fn;

use agentvm_sdk::plugin::{
    PluginHost,
    monitor::{AckWake, AckWakeArgs, MonitorSpec, TakeUpdates, TakeUpdatesArgs, WakeAck},
};

use crate::{
    monitor::{ended, host, start, status, take},
    support::{Random, out, spawn, vm, within},
};

/// For each number it reads, a burst of so many numbered lines, in one write.
const BURSTS: &str = "n=0
while read -r k; do
  lines=
  while [ $k -gt 0 ]; do k=$((k - 1)) n=$((n + 1)) lines=\"$lines$n\\n\"; done
  printf \"$lines\"
done < bursts
exit 0";

/// What an agent has read: lines it saw, and those it was told it did not.
#[derive(Default)]
struct Read {
    seen: u64,
    dropped: u64,
    last: u64,
    ended: bool,
}

impl Read {
    /// Takes in a text that is acknowledged for good: the lines since the last such one.
    fn text(&mut self, text: &str, dropped: u64) {
        let lines = text.strip_prefix("Monitor event \"bursts\": ").expect("whose it is");
        let gone = (dropped > 0).then(|| format!("({dropped} earlier lines dropped)\n"));
        let lines = lines.strip_prefix(gone.as_deref().unwrap_or_default()).expect("how many are gone");
        self.dropped += dropped;
        let mut next = self.last + dropped + 1;
        for line in lines.lines() {
            self.ended |= line == "Monitor exited";
            assert!(self.ended || line.parse() == Ok(next), "{line} is not {next}");
            (self.seen, next) = (self.seen + 1, next + 1);
        }
        self.last = next - 1;
    }
}

/// Begins a call and drops it, perhaps before its answer.
async fn acknowledge_and_look_away(host: &PluginHost, args: AckWakeArgs) {
    let mut call = Box::pin(host.invoke_typed::<AckWake>(args));
    poll_fn(|cx| {
        let _ = call.as_mut().poll(cx);
        std::task::Poll::Ready(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_wake_is_lost_in_ten_thousand_bursts_with_random_acks_and_dropped_calls() {
    let vm = vm().await;
    let host = host(&vm).await;
    out(&vm, "mkfifo bursts").await;
    let wanted = spawn(&vm, "cat > bursts");
    start(&host, MonitorSpec::new("bursts", BURSTS)).await;
    let (mut random, mut read, mut bursts, mut acks) = (Random(7), Read::default(), 0, 0);
    while !read.ended {
        for _ in 0..(1 + random.below(7)).min(10_000 - bursts) {
            wanted.write_stdin(format!("{}\n", 1 + random.below(20))).unwrap();
            bursts += 1;
        }
        if bursts == 10_000 {
            wanted.close_stdin();
        }
        if random.below(4) == 0 {
            // Never polled: nothing is taken by it.
            drop(host.invoke_typed::<TakeUpdates>(TakeUpdatesArgs::default()));
        }
        // Some of these bursts, or the end, are still to be acknowledged.
        let wake = loop {
            let seen = host.revision();
            if let Some(wake) = take(&host).await.wakes.pop() {
                break wake;
            }
            within(host.changed(seen)).await;
        };
        // Often it is not acknowledged, and comes again with what has come meanwhile.
        let ack = WakeAck { id: wake.monitor_id.clone(), through_sequence: wake.through_sequence };
        let args = match random.below(5) {
            0 | 1 if !wake.text.ends_with("Monitor exited") => continue,
            2 => AckWakeArgs { ids: vec![ack.id], ..AckWakeArgs::default() },
            _ => AckWakeArgs { acks: vec![ack], ..AckWakeArgs::default() },
        };
        if random.below(2) == 0 {
            acknowledge_and_look_away(&host, args.clone()).await;
        }
        within(host.invoke_typed::<AckWake>(args)).await.unwrap();
        read.text(&wake.text, wake.dropped);
        acks += 1;
    }
    ended(&host, "bursts").await;
    assert!(take(&host).await.wakes.is_empty());
    let told = status(&host, "bursts").await.event_count;
    println!(
        "{told} lines and an end: {} read, {} counted as dropped, {acks} acknowledged",
        read.seen, read.dropped
    );
    assert_eq!(read.seen + read.dropped, told);
    assert!(read.seen > 1000 && acks > 100, "it was no test");
}
