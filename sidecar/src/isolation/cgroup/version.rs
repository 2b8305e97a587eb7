//! The two versions of control groups: what their files are called and hold.

use super::Controller;

/// Which of the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Version {
    /// `Documentation/admin-guide/cgroup-v1`: one hierarchy for each controller, or a few.
    V1,
    /// `Documentation/admin-guide/cgroup-v2.rst`: one for all.
    V2,
}

/// Microseconds over which a share of the processor is counted.
const PERIOD_US: u64 = 100_000;

/// A file of a group, what is written to it, and whether it must be there.
pub(super) type Setting = (&'static str, String, bool);

impl Version {
    /// Settings that limit memory, in order: swap is no way out of it.
    pub(super) fn memory(self, bytes: u64) -> Vec<Setting> {
        match self {
            Self::V1 => vec![
                ("memory.limit_in_bytes", bytes.to_string(), true),
                // Absent where the kernel does not count swap, or has none.
                ("memory.memsw.limit_in_bytes", bytes.to_string(), false),
            ],
            Self::V2 => {
                vec![("memory.max", bytes.to_string(), true), ("memory.swap.max", "0".to_owned(), false)]
            }
        }
    }

    /// Settings that limit processor time.
    pub(super) fn cpu(self, millicores: u64) -> Vec<Setting> {
        let quota = millicores.saturating_mul(PERIOD_US / 1000);
        match self {
            Self::V1 => vec![
                ("cpu.cfs_period_us", PERIOD_US.to_string(), true),
                ("cpu.cfs_quota_us", quota.to_string(), true),
            ],
            Self::V2 => vec![("cpu.max", format!("{quota} {PERIOD_US}"), true)],
        }
    }

    /// Settings that limit processes.
    pub(super) fn pids(self, count: u64) -> Vec<Setting> {
        match self {
            Self::V1 | Self::V2 => vec![("pids.max", count.to_string(), true)],
        }
    }

    /// The file with the weight of a group's share of the processor, and what it holds unless it is set: as much as a
    /// session of the host has.
    pub(super) fn share(self) -> (&'static str, u64) {
        match self {
            Self::V1 => ("cpu.shares", 1024),
            Self::V2 => ("cpu.weight", 100),
        }
    }

    /// The file that says how much of a resource is used now; `None` where no file does.
    pub(super) fn usage(self, controller: Controller) -> Option<&'static str> {
        match (self, controller) {
            (Self::V1, Controller::Memory) => Some("memory.usage_in_bytes"),
            (Self::V2, Controller::Memory) => Some("memory.current"),
            // Version 1 counts processor time in a controller of its own, and what counts processes is their table.
            (Self::V1, Controller::Cpu) | (_, Controller::Pids) => None,
            (Self::V2, Controller::Cpu) => Some("cpu.stat"),
        }
    }

    /// The file whose line `oom_kill N` counts the processes ended for want of memory.
    pub(super) fn memory_events(self) -> &'static str {
        match self {
            Self::V1 => "memory.oom_control",
            Self::V2 => "memory.events",
        }
    }

    /// Where a thread that writes `0` enters the group.
    pub(super) fn entrance(self) -> &'static str {
        match self {
            // Not `cgroup.procs`: a thread that moves itself alone waits for no grace period.
            Self::V1 => "tasks",
            Self::V2 => "cgroup.procs",
        }
    }
}

/// The number in a line `key number`.
pub(super) fn value_of(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_found_by_its_whole_key() {
        let events = "low 0\nhigh 3\nmax 17\noom 2\noom_kill 1\noom_group_kill 0\n";
        assert_eq!(value_of(events, "oom"), Some(2));
        assert_eq!(value_of(events, "oom_kill"), Some(1));
        assert_eq!(value_of(events, "oom_"), None);
        assert_eq!(value_of("oom_kill_disable 0\nunder_oom 0\noom_kill 4\n", "oom_kill"), Some(4));
    }

    #[test]
    fn half_a_processor_is_half_of_each_period() {
        assert_eq!(Version::V2.cpu(500), [("cpu.max", "50000 100000".to_owned(), true)]);
        assert_eq!(Version::V1.cpu(2000)[1].1, "200000");
    }
}
