//! What the VM uses as a whole, counted from inside.

use rustix::fs::statvfs;
use rustix::io::Errno;
use rustix::process::getpid;
use serde::{Deserialize, Serialize};

use super::inspect::{become_owner, number};
use super::members::Members;
use super::place::Place;
use super::rows::Writer;
use super::server::Server;
use super::stat::TICKS_PER_SECOND;

/// What it uses at this moment, beside what runs our own code.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Used {
    /// Processes and threads.
    pub pids: u64,
    /// Resident bytes of all processes; what they share counts for each.
    pub memory_bytes: u64,
    /// Microseconds of processor time since the VM began, but for that of processes nobody waited for.
    pub cpu_us: u64,
    /// Bytes fetched from storage since the VM began, and bytes that had to be stored, but for those of processes nobody
    /// waited for. What is cached, and what lies in memory, is neither.
    pub io: [u64; 2],
    /// Bytes in the writable layer, and files and folders, where the VM has one.
    pub disk: Option<(u64, u64)>,
}

impl Server<'_> {
    /// Writes one row.
    pub(super) fn write_usage(&self, members: &Members, rows: &mut Writer) -> Result<(), Errno> {
        let own = getpid();
        let mut used = Used { io: self.reaped_io, ..Used::default() };
        let mut ticks = 0;
        for pid in members.pids()? {
            // One that has ended meanwhile is counted by its parent.
            let Ok(place) = Place::of(members.folder(), pid) else { continue };
            let Some(stat) = place.stat() else { continue };
            ticks += stat.cpu_ticks + stat.children_cpu_ticks;
            if pid != own && pid != members.init() && !self.is_helper(pid) && !self.is_spare(pid) {
                used.pids += stat.threads;
                used.memory_bytes += stat.rss_pages.saturating_mul(rustix::param::page_size() as u64);
                for (all, own) in used.io.iter_mut().zip(io(&place).unwrap_or_default()) {
                    *all += own;
                }
            }
        }
        used.cpu_us = ticks.saturating_mul(1_000_000 / TICKS_PER_SECOND);
        if self.terms.plan.folder.is_none() {
            let disk = statvfs("/")?;
            let bytes = disk.f_blocks.saturating_sub(disk.f_bfree).saturating_mul(disk.f_frsize);
            used.disk = Some((bytes, disk.f_files.saturating_sub(disk.f_ffree)));
        }
        rows.push(&used)
    }
}

/// Bytes that a process, and those it waited for, fetched from storage and had stored (`proc_pid_io(5)`). One that may not
/// be looked into, since it has other rights than its owner, tells only when it has ended.
fn io(place: &Place) -> Option<[u64; 2]> {
    become_owner(place).ok()?;
    let text = place.read("io", 0, 4096)?;
    Some([number(&text, "read_bytes", 10)?, number(&text, "write_bytes", 10)?])
}
