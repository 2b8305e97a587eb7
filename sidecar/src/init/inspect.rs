//! What is read of one process: its arguments, whole, and its open descriptors.

use agentvm_wire::process::ProcessRef;
use rustix::fs::{AtFlags, FileType, StatxFlags, statat, statx};
use rustix::io::Errno;
use rustix::process::{Pid, Uid, getuid};
use rustix::thread::{CapabilitySets, capabilities, set_capabilities, set_thread_res_uid};

use super::members::Members;
use super::place::Place;
use super::rows::{Handle, Writer};
use super::server::Server;

/// Arguments that one page holds at most.
const PAGE_BYTES: usize = 1 << 20;

impl Server<'_> {
    /// Writes the arguments, each ended by a NUL, from a byte on; ENOSPC if there are more.
    pub(super) fn write_cmdline(
        &self,
        members: &Members,
        of: ProcessRef,
        offset: u64,
        rows: &mut Writer,
    ) -> Result<(), Errno> {
        let place = self.find(members, of)?;
        if let ProcessRef::Process(_) = of {
            place.await_command();
        }
        let text = place.read("cmdline", offset, PAGE_BYTES).ok_or(Errno::SRCH)?;
        rows.push(&text)?;
        if text.len() < PAGE_BYTES { Ok(()) } else { Err(Errno::NOSPC) }
    }

    /// Writes a row for every open descriptor with a higher number, rising.
    pub(super) fn write_file_handles(
        &self,
        members: &Members,
        of: ProcessRef,
        after: Option<u32>,
        rows: &mut Writer,
    ) -> Result<(), Errno> {
        let place = self.find(members, of)?;
        become_owner(&place)?;
        let numbers = match place.numbers("fd") {
            // A zombie has none.
            Err(Errno::NOENT) => Vec::new(),
            numbers => numbers?,
        };
        for fd in numbers.into_iter().filter(|fd| after.is_none_or(|after| *fd > after)) {
            // One that was closed meanwhile has no row.
            if let Some(handle) = handle(&place, fd) {
                rows.push(&handle)?;
            }
        }
        Ok(())
    }

    /// A started process is found by its pid as long as init has not reaped it; a pid given away since is another tree's.
    fn find(&self, members: &Members, of: ProcessRef) -> Result<Place, Errno> {
        let pid = match of {
            ProcessRef::Process(id) => self.table.pid_of(id),
            ProcessRef::Pid(pid) => i32::try_from(pid).ok().and_then(Pid::from_raw),
        };
        let pid = pid.ok_or(Errno::SRCH)?;
        let place = Place::of(members.folder(), pid)?;
        if let ProcessRef::Process(id) = of
            && let Some(mark) = members.mark(pid)
            && self.table.mark_of(id) != Some(mark)
        {
            return Err(Errno::SRCH);
        }
        let stat = place.stat().ok_or(Errno::SRCH)?;
        Ok(place.of_the_living(&stat).0)
    }
}

/// Only its owner may see a process's descriptors and what it reads and writes, whatever capabilities somebody else holds:
/// a helper becomes that owner, and keeps its capabilities.
pub(super) fn become_owner(place: &Place) -> Result<(), Errno> {
    let owner = statat(place.folder(), "fd", AtFlags::empty())?.st_uid;
    set_thread_res_uid(getuid(), Uid::from_raw(owner), getuid())?;
    let held = capabilities(None)?;
    set_capabilities(None, CapabilitySets { effective: held.permitted, ..held })
}

fn handle(place: &Place, fd: u32) -> Option<Handle> {
    let path = format!("fd/{fd}");
    let target = place.link(&path)?;
    let info = place.read(&format!("fdinfo/{fd}"), 0, 4096)?;
    // A file system that does not answer must not be asked.
    let kind = statx(place.folder(), &path, AtFlags::STATX_DONT_SYNC, StatxFlags::TYPE)
        .map_or(FileType::Unknown, |stat| FileType::from_raw_mode(stat.stx_mode.into()));
    let field = |name: &str, radix| number(&info, name, radix).unwrap_or(0);
    Some(Handle {
        fd,
        target,
        kind: kind.as_raw_mode(),
        flags: field("flags", 8).try_into().unwrap_or(0),
        position: field("pos", 10),
    })
}

/// A field of `/proc/PID/fdinfo/N`, `proc_pid_fdinfo(5)`, or `/proc/PID/io`: `name: number`, each on a line of its own.
pub(super) fn number(info: &[u8], name: &str, radix: u32) -> Option<u64> {
    let lines = str::from_utf8(info).ok()?.lines();
    let mut fields = lines.filter_map(|line| line.split_once(':'));
    let (_, value) = fields.find(|(field, _)| *field == name)?;
    u64::from_str_radix(value.trim(), radix).ok()
}

#[cfg(test)]
mod tests {
    use super::number;

    #[test]
    fn fields_are_found_by_their_whole_name() {
        let info = b"pos:\t7\nflags:\t0100002\nmnt_id:\t15\nlock:\t1: POSIX\n";
        assert_eq!(number(info, "pos", 10), Some(7));
        assert_eq!(number(info, "flags", 8), Some(0o100_002));
        assert_eq!(number(info, "lock", 10), None);
        assert_eq!(number(info, "id", 10), None);
        assert_eq!(number(b"\xff", "pos", 10), None);
    }
}
