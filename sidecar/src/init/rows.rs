//! Rows of a process table, and of other things, as a helper writes them to a memory file and the sidecar reads them.
//!
//! ```text
//!   8 bytes: length of everything, these included    4 bytes: length of a row    the row    4 bytes …
//! ```
//!
//! The length in front is written last: while it is zero the table is not finished.

use std::os::fd::{AsFd, OwnedFd};

use agentvm_wire::id::ProcessId;
use rustix::io::{Errno, pread, pwrite};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// One process of a VM.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// The started process it is.
    pub process: Option<ProcessId>,
    /// The started process it is or descends from; absent for init and for processes of none.
    pub root: Option<ProcessId>,
    /// Its pid inside.
    pub pid: u32,
    /// Its parent; 0 for init.
    pub ppid: u32,
    /// Its process group.
    pub pgid: u32,
    /// Its session.
    pub sid: u32,
    /// Its name, as chosen by itself.
    pub comm: Vec<u8>,
    /// Its arguments, the command first; empty for a zombie.
    pub args: Vec<Vec<u8>>,
    /// Whether `args` was cut: at 64 KiB or 4096 arguments.
    pub args_truncated: bool,
    /// Its working directory, where that can be read.
    pub cwd: Option<Vec<u8>>,
    /// State letter of `proc_pid_stat(5)`: `R`, `S`, `D`, `T`, `t`, `Z`, `X`, `I`.
    pub state: u8,
    /// Start in milliseconds since the epoch, to 10 ms.
    pub started_at_ms: u64,
    /// Resident bytes.
    pub rss_bytes: u64,
    /// Microseconds of user and kernel time.
    pub cpu_time_us: u64,
}

/// An open descriptor of a process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Handle {
    pub(crate) fd: u32,
    /// A path as the guest sees it, or the kernel's word for what has none (`pipe:[7]`).
    pub(crate) target: Vec<u8>,
    /// The type bits of its mode, `inode(7)`; 0 for what has none.
    pub(crate) kind: u32,
    /// Those of open(2).
    pub(crate) flags: u32,
    /// Where it stands in the file.
    pub(crate) position: u64,
}

const HEADER: usize = size_of::<u64>();

/// Writes rows until the space is used up.
#[derive(Debug)]
pub(super) struct Writer {
    file: OwnedFd,
    at: u64,
    limit: u64,
}

impl Writer {
    pub(super) fn new(file: OwnedFd, max_bytes: u64) -> Self {
        Self { file, at: HEADER as u64, limit: (HEADER as u64).saturating_add(max_bytes) }
    }

    /// Adds a row; ENOSPC if it does not fit.
    pub(super) fn push(&mut self, row: &impl Serialize) -> Result<(), Errno> {
        let bytes = postcard::to_stdvec(row).map_err(|_| Errno::NOMEM)?;
        let length = u32::try_from(bytes.len()).map_err(|_| Errno::NOSPC)?;
        if self.at + u64::from(length) + 4 > self.limit {
            return Err(Errno::NOSPC);
        }
        self.write(&length.to_le_bytes())?;
        self.write(&bytes)
    }

    /// Makes the rows valid.
    pub(super) fn finish(self) -> Result<(), Errno> {
        pwrite(&self.file, &self.at.to_le_bytes(), 0).map(drop)
    }

    fn write(&mut self, mut bytes: &[u8]) -> Result<(), Errno> {
        while !bytes.is_empty() {
            let count = pwrite(&self.file, bytes, self.at)?;
            self.at += count as u64;
            bytes = &bytes[count..];
        }
        Ok(())
    }
}

/// Reads rows back, of at most `max_bytes`; EBADMSG if they are no rows.
pub(super) fn read<T: DeserializeOwned>(file: impl AsFd, max_bytes: usize) -> Result<Vec<T>, Errno> {
    let mut header = [0; HEADER];
    if pread(&file, &mut header, 0)? != header.len() {
        return Err(Errno::BADMSG);
    }
    let end = usize::try_from(u64::from_le_bytes(header)).map_err(|_| Errno::BADMSG)?;
    let length = end.checked_sub(HEADER).ok_or(Errno::BADMSG)?;
    if length > max_bytes {
        return Err(Errno::BADMSG);
    }
    let mut bytes = vec![0; length];
    let mut filled = 0;
    while filled < length {
        match pread(&file, &mut bytes[filled..], (HEADER + filled) as u64)? {
            0 => return Err(Errno::BADMSG),
            count => filled += count,
        }
    }
    decode(&bytes)
}

fn decode<T: DeserializeOwned>(mut bytes: &[u8]) -> Result<Vec<T>, Errno> {
    let mut rows = Vec::new();
    while let Some((length, rest)) = bytes.split_first_chunk::<4>() {
        let (row, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize).ok_or(Errno::BADMSG)?;
        rows.push(postcard::from_bytes(row).map_err(|_| Errno::BADMSG)?);
        bytes = rest;
    }
    if bytes.is_empty() { Ok(rows) } else { Err(Errno::BADMSG) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rustix::fs::{MemfdFlags, memfd_create};
    use rustix::io::Errno;

    use super::{Row, Writer, decode, read};

    fn row(pid: u32, args: Vec<Vec<u8>>) -> Row {
        Row {
            process: None,
            root: None,
            pid,
            ppid: 1,
            pgid: pid,
            sid: pid,
            comm: b"x\n)".to_vec(),
            args,
            args_truncated: false,
            cwd: Some(b"/workspace".to_vec()),
            state: b'S',
            started_at_ms: 1,
            rss_bytes: 2,
            cpu_time_us: 3,
        }
    }

    #[test]
    fn rows_come_back_as_they_were_written() {
        let file = memfd_create(c"rows", MemfdFlags::CLOEXEC).unwrap();
        let rows = vec![row(2, vec![b"sh".to_vec(), Vec::new(), b"a\nb".to_vec()]), row(3, Vec::new())];
        let mut writer = Writer::new(file.try_clone().unwrap(), 4096);
        for row in &rows {
            writer.push(row).unwrap();
        }
        assert_eq!(read::<Row>(&file, 4096), Err(Errno::BADMSG), "not before the end is written");
        writer.finish().unwrap();
        assert_eq!(read(&file, 4096), Ok(rows));
        assert_eq!(read::<Row>(&file, 10), Err(Errno::BADMSG), "and not more than was asked for");
    }

    #[test]
    fn rows_beyond_the_space_are_refused() {
        let file = memfd_create(c"rows", MemfdFlags::CLOEXEC).unwrap();
        let mut writer = Writer::new(file, 100);
        assert_eq!(writer.push(&row(2, vec![vec![b'x'; 200]])), Err(Errno::NOSPC));
        assert_eq!(writer.push(&row(2, Vec::new())), Ok(()));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_bytes_are_decoded_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..512)) {
            let _ = decode::<Row>(&bytes);
        }
    }
}
