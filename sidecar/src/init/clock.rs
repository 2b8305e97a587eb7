//! When the machine started: what `/proc` counts the start of a process from.

use std::time::Duration;

use rustix::time::{ClockId, Timespec, clock_gettime};

/// As far apart two readings may be without the clock having been set: the kernel itself counts in ticks of this.
const TICK: Duration = Duration::from_millis(10);
/// Attempts to read two clocks at one moment.
const ATTEMPTS: u32 = 8;

/// In milliseconds since the epoch. As long as nobody sets the clock it stays what it was `before`, so that the start
/// of a process is the same whenever it is asked for.
pub(super) fn machine_start_ms(before: u64) -> u64 {
    let now = measured_ms();
    if Duration::from_millis(now.abs_diff(before)) > TICK { now } else { before }
}

fn measured_ms() -> u64 {
    let mut start = Duration::ZERO;
    for _ in 0..ATTEMPTS {
        let since_start = read(ClockId::Boottime);
        start = read(ClockId::Realtime).saturating_sub(since_start);
        // Not interrupted in between.
        if read(ClockId::Boottime).saturating_sub(since_start) < TICK / 10 {
            break;
        }
    }
    u64::try_from(start.as_millis()).unwrap_or(0)
}

fn read(clock: ClockId) -> Duration {
    let Timespec { tv_sec, tv_nsec } = clock_gettime(clock);
    Duration::new(u64::try_from(tv_sec).unwrap_or(0), u32::try_from(tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::{machine_start_ms, measured_ms};

    #[test]
    fn the_start_stays_what_it_was_unless_the_clock_was_set() {
        let start = measured_ms();
        for _ in 0..1000 {
            assert_eq!(machine_start_ms(start), start);
        }
        let was_set = machine_start_ms(start + 3_600_000);
        assert!(was_set.abs_diff(start) <= 10, "{was_set} {start}");
    }
}
