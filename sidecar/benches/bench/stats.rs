//! Figures and how they are shown.

use std::time::{Duration, Instant};

/// Durations of one kind.
pub(crate) struct Samples {
    name: &'static str,
    all: Vec<Duration>,
}

impl Samples {
    pub(crate) fn new(name: &'static str) -> Self {
        Self { name, all: Vec::new() }
    }

    pub(crate) fn push(&mut self, sample: Duration) {
        self.all.push(sample);
    }

    /// Times a call.
    pub(crate) fn time<T>(&mut self, call: impl FnOnce() -> T) -> T {
        let begun = Instant::now();
        let result = call();
        self.push(begun.elapsed());
        result
    }

    /// Times a future.
    pub(crate) async fn time_async<T>(&mut self, future: impl Future<Output = T>) -> T {
        let begun = Instant::now();
        let result = future.await;
        self.push(begun.elapsed());
        result
    }

    fn percentile(&self, percent: usize) -> f64 {
        // The first rounds are paid cold.
        let mut sorted = self.all[self.all.len() / 10..].to_vec();
        sorted.sort_unstable();
        millis(sorted[(sorted.len() - 1) * percent / 100])
    }
}

/// One line: ours beside the floor.
pub(crate) fn compare(floor: &Samples, ours: &Samples) {
    let (floor_50, floor_95) = (floor.percentile(50), floor.percentile(95));
    let (ours_50, ours_95) = (ours.percentile(50), ours.percentile(95));
    println!(
        "{:<24} p50 {ours_50:7.3} ms  p95 {ours_95:7.3} ms   {:<20} p50 {floor_50:7.3} ms  p95 {floor_95:7.3} ms   \
         ratio p50 {:.2}",
        ours.name,
        floor.name,
        ours_50 / floor_50
    );
}

/// One line: bytes a second through us and through a plain pipe.
pub(crate) fn throughput(name: &str, bytes: u64, plain: Duration, ours: Duration) {
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    let gigabytes = |time: Duration| bytes as f64 / time.as_secs_f64() / 1e9;
    let ratio = gigabytes(ours) / gigabytes(plain);
    println!(
        "{name:<24} {:.2} GB/s   plain pipe {:.2} GB/s   ratio {ratio:.2}",
        gigabytes(ours),
        gigabytes(plain)
    );
}

/// One line: the middle of the ratios of what was run in turn, and all of them.
pub(crate) fn in_turn(name: &str, plain: &[Duration], ours: &[Duration]) {
    let ratio = |(plain, ours): (&Duration, &Duration)| ours.as_secs_f64() / plain.as_secs_f64();
    let mut ratios: Vec<f64> = plain.iter().zip(ours).map(ratio).collect();
    ratios.sort_unstable_by(f64::total_cmp);
    let middle = ratios[ratios.len() / 2];
    let all: Vec<_> = ratios.iter().map(|ratio| format!("{ratio:.2}")).collect();
    println!("{name:<48} ratio {middle:.2} (of {})", all.join(" "));
}

/// One line: how many a second.
pub(crate) fn rate(name: &str, count: u32, plain: Duration, ours: Duration) {
    let rate = |time: Duration| f64::from(count) / time.as_secs_f64();
    let ratio = rate(ours) / rate(plain);
    println!("{count} {name:<20} {:.0}/s   plain {:.0}/s   ratio {ratio:.2}", rate(ours), rate(plain));
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}
