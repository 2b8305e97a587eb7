//! The rows of the process table.

use agentvm_wire::id::ProcessId;
use rustix::io::Errno;
use rustix::process::{Pid, getpid};

use super::members::Members;
use super::place::Place;
use super::rows::{Row, Writer};
use super::server::Server;
use super::stat::{Stat, TICKS_PER_SECOND};
use super::table::{Mark, Process, Table};

/// Bytes of arguments a row holds at most.
pub(crate) const MAX_ARGS_BYTES: usize = 64 << 10;

/// How many arguments a row holds at most: what reads them keeps each in memory of its own, however short it is.
pub(crate) const MAX_ARGS: usize = 4096;

impl Server<'_> {
    /// Writes a row for every process with a higher pid, rising.
    pub(super) fn write_table(&self, members: &Members, after: u32, rows: &mut Writer) -> Result<(), Errno> {
        let own = getpid();
        let reader = Reader::new(members, self, own).ok_or(Errno::SRCH)?;
        for pid in members.pids()? {
            if pid.as_raw_nonzero().get().unsigned_abs() <= after {
                continue;
            }
            // A start that has not executed its command may still fail: then there was no such process.
            let is_starting = self.table.root(pid).is_some_and(Process::is_starting);
            if pid == own || is_starting || self.is_helper(pid) || self.is_spare(pid) {
                continue;
            }
            // One that has ended meanwhile has no row; nor has a child of init that runs our code.
            if let Some(row) = reader.row(pid)
                && (row.root.is_some() || pid == members.init())
            {
                rows.push(&row)?;
            }
        }
        Ok(())
    }
}

/// Reads rows.
struct Reader<'a> {
    members: &'a Members,
    table: &'a Table,
    /// When the machine started, in milliseconds since the epoch.
    boot_ms: u64,
    /// When this helper was forked.
    since: Birth,
    /// Marks of starts that init does not know yet, and may still take for those of earlier trees.
    unknown: Vec<Mark>,
}

/// When a process was forked, in clock ticks, and within one tick by pid: the kernel gives pids in rising order.
type Birth = (u64, i32);

fn birth(stat: &Stat, pid: Pid) -> Birth {
    (stat.start_ticks, pid.as_raw_nonzero().get())
}

impl<'a> Reader<'a> {
    fn new(members: &'a Members, server: &'a Server<'_>, own: Pid) -> Option<Self> {
        let table = &server.table;
        let since = birth(&Place::of(members.folder(), own).ok()?.stat()?, own);
        let starting = table.iter().filter(|process| process.is_starting());
        let starting = starting.filter_map(|process| members.mark(process.pid));
        let unknown = starting.chain(server.spare_mark()).collect();
        Some(Self { members, table, boot_ms: server.machine_start_ms, since, unknown })
    }

    /// `None` also for what was forked after this helper: it belongs to a later table.
    fn row(&self, pid: Pid) -> Option<Row> {
        let place = Place::of(self.members.folder(), pid).ok()?;
        // One of ours may have been forked long before it was started.
        let started = self.table.root(pid);
        if started.is_some() {
            place.await_command();
        }
        // Of all threads together, …
        let stat = place.stat().filter(|stat| birth(stat, pid) < self.since)?;
        // … and of memory and files, which the main thread may have left to others.
        let (place, living) = place.of_the_living(&stat);
        let (args, args_truncated) = args(&place);
        let forked = started_ms(self.boot_ms, &stat);
        Some(Row {
            process: started.map(|process| process.id),
            root: self.owner(pid, stat.ppid),
            pid: pid.as_raw_nonzero().get().unsigned_abs(),
            ppid: stat.ppid,
            pgid: stat.pgid,
            sid: stat.sid,
            comm: stat.comm,
            args,
            args_truncated,
            cwd: place.link("cwd"),
            state: living.state,
            started_at_ms: started.map_or(forked, |process| process.started_at_ms),
            rss_bytes: living.rss_pages.saturating_mul(rustix::param::page_size() as u64),
            cpu_time_us: stat.cpu_ticks.saturating_mul(1_000_000 / TICKS_PER_SECOND),
        })
    }

    /// By its mark. A zombie has none any more, but is known by its pid, or belongs where its parent does.
    fn owner(&self, pid: Pid, parent: u32) -> Option<ProcessId> {
        let by_mark = |mark: Mark| self.table.owner_of(mark).filter(|_| !self.unknown.contains(&mark));
        let of = |pid: Pid| {
            let by_pid = self.table.root(pid).map(|process| process.id);
            by_pid.or_else(|| by_mark(self.members.mark(pid)?))
        };
        of(pid).or_else(|| of(Pid::from_raw(i32::try_from(parent).ok()?)?))
    }
}

/// When a process was forked, in milliseconds since the epoch.
pub(super) fn started_ms(boot_ms: u64, stat: &Stat) -> u64 {
    boot_ms.saturating_add(stat.start_ticks.saturating_mul(1000 / TICKS_PER_SECOND))
}

/// Arguments, and whether there are more.
fn args(place: &Place) -> (Vec<Vec<u8>>, bool) {
    place.read("cmdline", 0, MAX_ARGS_BYTES + 1).map_or((Vec::new(), false), split_args)
}

/// The text holds one byte more than is wanted, if there are as many.
pub(super) fn split_args(mut text: Vec<u8>) -> (Vec<Vec<u8>>, bool) {
    let truncated = text.len() > MAX_ARGS_BYTES;
    text.truncate(MAX_ARGS_BYTES);
    if text.is_empty() {
        return (Vec::new(), truncated);
    }
    if text.last() == Some(&0) {
        text.pop();
    }
    let mut args = text.split(|byte| *byte == 0).map(<[u8]>::to_vec);
    (args.by_ref().take(MAX_ARGS).collect(), truncated || args.next().is_some())
}
