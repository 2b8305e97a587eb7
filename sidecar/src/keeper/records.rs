//! What the kernel records of forks and ends in a tree (`perf_event_open(2)`): also of who is killed before anything else is
//! known of it. Nobody is held up for it.

#[cfg(test)]
mod tests;

use std::os::fd::{AsFd as _, BorrowedFd};

use rustix::io::Errno;
use rustix::process::Pid;

use super::proc::pid_of;
use crate::sys::perf::Ring;
use crate::word::word;

/// Processors of a host at most: every fork pays for each.
const MAX_PROCESSORS: u32 = 64;

/// Looks at all rings in a row at most.
const MAX_LOOKS: usize = 16;

const LOST: u32 = 2;
const EXIT: u32 = 4;
const FORK: u32 = 7;

/// Something that happened to a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Record {
    /// It was made.
    Forked {
        pid: Pid,
        /// Who made it, as the host counts.
        parent: u32,
        /// Nanoseconds of the monotonic clock.
        at_ns: u64,
    },
    /// Its main thread has ended.
    Ended { pid: Pid, at_ns: u64 },
    /// So many records had no room.
    Lost { count: u64 },
}

/// The records of one tree.
#[derive(Debug)]
pub(super) struct Records {
    /// One for each processor.
    rings: Vec<Ring>,
    buffer: Vec<u8>,
}

impl Records {
    /// From now on, for a root that still waits to go.
    pub(super) fn of(root: Pid) -> rustix::io::Result<Self> {
        let online = std::fs::read_to_string("/sys/devices/system/cpu/online");
        let online = online.ok().and_then(|text| processors(&text)).ok_or(Errno::OPNOTSUPP)?;
        let rings = online.into_iter().map(|processor| Ring::open(root, processor));
        Ok(Self { rings: rings.collect::<Result<_, _>>()?, buffer: Vec::new() })
    }

    /// Readable when it is time to take them, once.
    pub(super) fn watched(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.rings.iter().map(|ring| ring.as_fd())
    }

    /// What is new, in the order it happened.
    pub(super) fn take(&mut self) -> Vec<Record> {
        let mut found = Vec::new();
        for _ in 0..MAX_LOOKS {
            self.buffer.clear();
            self.rings.iter_mut().for_each(|ring| ring.take(&mut self.buffer));
            if self.buffer.is_empty() {
                break;
            }
            // What led to this may stand in a ring that was looked at before, so they are looked at once more.
            found.extend(records(&self.buffer));
        }
        found.sort_by_key(|(at_ns, _)| *at_ns);
        found.into_iter().map(|(_, record)| record).collect()
    }
}

/// Whether this host lets this user have them.
#[cfg(test)]
pub(crate) fn records_can_be_had() -> bool {
    Records::of(rustix::thread::gettid()).is_ok()
}

/// Those of processes, with their time.
fn records(mut bytes: &[u8]) -> Vec<(u64, Record)> {
    let mut found = Vec::new();
    let mut at_ns = 0;
    // `struct perf_event_header`: kind, flags, bytes in all.
    while let Some((kind, length)) = word(bytes, 0).zip(word(bytes, 4).map(|word| word >> 16)) {
        let length = usize::try_from(length).unwrap_or(usize::MAX).max(8);
        let Some((record, rest)) = bytes.split_at_checked(length) else { break };
        bytes = rest;
        let body = &record[8..];
        let long = |at| Some(u64::from(word(body, at)?) | u64::from(word(body, at + 4)?) << 32);
        if kind == LOST {
            // It has no time: it stands behind what came before it.
            found.extend(long(8).map(|count| (at_ns, Record::Lost { count })));
            continue;
        }
        // Process, its parent, thread, who made that.
        let [process, parent, thread] = [0, 4, 8].map(|at| word(body, at));
        let Some((pid, parent)) = process.filter(|_| process == thread).and_then(pid_of).zip(parent) else {
            continue;
        };
        let Some(time) = long(16) else { continue };
        at_ns = time;
        match kind {
            FORK => found.push((at_ns, Record::Forked { pid, parent, at_ns })),
            EXIT => found.push((at_ns, Record::Ended { pid, at_ns })),
            _ => {}
        }
    }
    found
}

/// Of a list as `0-3,8`; none if there are too many.
fn processors(text: &str) -> Option<Vec<u32>> {
    let mut found = Vec::new();
    for range in text.trim().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        found.extend((first..=last).take(MAX_PROCESSORS as usize + 1));
    }
    (found.len() <= MAX_PROCESSORS as usize).then_some(found)
}
