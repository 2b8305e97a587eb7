//! `/proc/PID/stat` (`proc_pid_stat(5)`): one line whose second field, the name, is chosen by the process and may hold
//! spaces, newlines and parentheses.

use rustix::time::{ClockId, clock_gettime};

use super::now_ns;

/// Clock ticks of `/proc` per second (`USER_HZ`): the same everywhere.
pub(super) const TICKS_PER_SECOND: u64 = 100;

/// What is needed of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stat {
    /// Name, at most 15 bytes for a process.
    pub comm: Vec<u8>,
    /// State letter: `R`, `S`, `D`, `T`, `t`, `Z`, `X`, `I`.
    pub state: u8,
    pub ppid: u32,
    pub pgid: u32,
    pub sid: u32,
    /// Clock ticks in user mode and in the kernel together.
    pub cpu_ticks: u64,
    /// The same of the children that were waited for.
    pub children_cpu_ticks: u64,
    /// How many threads are left; a main thread that has ended counts until all have.
    pub threads: u64,
    /// Clock ticks from the start of the machine to that of the process.
    pub start_ticks: u64,
    /// Resident pages.
    pub rss_pages: u64,
    /// Flags of the kernel (`PF_*`).
    pub flags: u64,
    /// Where the stack, the arguments and the environment of its program begin; 0 once it has ended, and for who may not
    /// know.
    pub memory: [u64; 3],
    /// How it has ended (`wait(2)`), if it has and whoever asks may know.
    pub wait_status: i32,
}

impl Stat {
    /// It has ended, and only waits for its parent to look.
    pub(super) fn is_dead(&self) -> bool {
        matches!(self.state, b'Z' | b'X' | b'x')
    }

    /// It has ended, with all its threads.
    pub(crate) fn is_over(&self) -> bool {
        self.is_dead() && !self.has_only_lost_its_main_thread()
    }

    /// What has ended is its main thread; others go on, and so does the process.
    pub(super) fn has_only_lost_its_main_thread(&self) -> bool {
        self.is_dead() && self.threads > 1
    }
}

/// Fields by their number in the manual, counted from the first behind the name, which is number 3.
const STATE: usize = 0;
const PPID: usize = 1;
const PGRP: usize = 2;
const SESSION: usize = 3;
const FLAGS: usize = 6;
const UTIME: usize = 11;
const STIME: usize = 12;
const CUTIME: usize = 13;
const CSTIME: usize = 14;
const THREADS: usize = 17;
const START_TIME: usize = 19;
const RSS: usize = 21;
const START_STACK: usize = 25;
const ARG_START: usize = 45;
const ENV_START: usize = 47;
const EXIT_CODE: usize = 49;

/// Parses the line; `None` if it is not one.
pub(crate) fn parse(line: &[u8]) -> Option<Stat> {
    // The name ends at the last parenthesis: nothing behind it has one.
    let open = line.iter().position(|byte| *byte == b'(')?;
    let close = line.iter().rposition(|byte| *byte == b')')?;
    let comm = line.get(open + 1..close)?.to_vec();
    let fields: Vec<&[u8]> = line[close + 1..].trim_ascii().split(|byte| *byte == b' ').collect();
    let number = |field: usize| str::from_utf8(fields.get(field)?).ok()?.parse::<i64>().ok();
    // Processes outside this pid namespace have the number 0; -1 is "none", and a size is never negative.
    let id = |field| number(field).map(|id| u32::try_from(id).unwrap_or(0));
    let count = |field| number(field).map(|count| u64::try_from(count).unwrap_or(0));
    let [state] = fields.get(STATE)? else { return None };
    Some(Stat {
        comm,
        state: *state,
        ppid: id(PPID)?,
        pgid: id(PGRP)?,
        sid: id(SESSION)?,
        cpu_ticks: count(UTIME)?.saturating_add(count(STIME)?),
        children_cpu_ticks: count(CUTIME)?.saturating_add(count(CSTIME)?),
        threads: count(THREADS)?,
        start_ticks: count(START_TIME)?,
        rss_pages: count(RSS)?,
        flags: count(FLAGS)?,
        memory: [count(START_STACK)?, count(ARG_START)?, count(ENV_START)?],
        wait_status: i32::try_from(number(EXIT_CODE)?).ok()?,
    })
}

/// When a process started, in clock ticks from the start of the machine.
pub(crate) fn start_ticks(line: &[u8]) -> Option<u64> {
    parse(line).map(|stat| stat.start_ticks)
}

/// What [`start_ticks`] is of a process that begins at this moment of the monotonic clock.
pub(crate) fn ticks_at(mono_ns: u64) -> u64 {
    let booted = clock_gettime(ClockId::Boottime);
    let booted_ns = booted.tv_sec.unsigned_abs() * 1_000_000_000 + booted.tv_nsec.unsigned_abs();
    let asleep_ns = booted_ns.saturating_sub(now_ns());
    (mono_ns + asleep_ns) / (1_000_000_000 / TICKS_PER_SECOND)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Stat, parse};

    fn line(name: &[u8]) -> Vec<u8> {
        let mut line = b"77 (".to_vec();
        line.extend_from_slice(name);
        line.extend_from_slice(b") S 1 77 70 0 -1 4194560 95 0 0 0 12 30 4 3 20 0 1 0 4711 5652480 512 18446744073709551615 1 1 800 0 0 ");
        line.extend_from_slice(b"0 0 0 0 0 0 0 17 0 0 0 0 0 0 1 1 1 900 901 902 903 256\n");
        line
    }

    fn stat(name: &[u8]) -> Stat {
        Stat {
            comm: name.to_vec(),
            state: b'S',
            ppid: 1,
            pgid: 77,
            sid: 70,
            cpu_ticks: 42,
            children_cpu_ticks: 7,
            threads: 1,
            start_ticks: 4711,
            rss_pages: 512,
            flags: 4_194_560,
            memory: [800, 900, 902],
            wait_status: 256,
        }
    }

    #[test]
    fn names_that_look_like_fields_stay_names() {
        for name in ["sh", "", "a b", ")", "(", ") R 1 1 1", "x\ny", "((()", ") Z 0 0", "ü"] {
            assert_eq!(parse(&line(name.as_bytes())), Some(stat(name.as_bytes())), "{name:?}");
        }
    }

    #[test]
    fn what_is_cut_off_is_no_line() {
        let whole = line(b"sh");
        for end in 0..whole.len() - 4 {
            assert_eq!(parse(&whole[..end]), None, "{end}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_name_comes_back(name in proptest::collection::vec(any::<u8>(), 0..64)) {
            prop_assert_eq!(parse(&line(&name)), Some(stat(&name)));
        }

        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..256)) {
            let _ = parse(&bytes);
        }
    }
}
