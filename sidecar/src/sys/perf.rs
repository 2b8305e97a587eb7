//! Records of who makes whom and who ends (`perf_event_open(2)`), which the kernel writes to memory without making anybody
//! wait.

use std::os::fd::{AsFd, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap};
use rustix::process::Pid;

use super::check;

const TYPE_SOFTWARE: u32 = 1;
/// `PERF_COUNT_SW_DUMMY`: counts nothing.
const DUMMY: u64 = 9;
/// `PERF_FLAG_FD_CLOEXEC`.
const CLOSE_ON_EXEC: libc::c_ulong = 1 << 3;

/// Children are recorded as their parent is.
const INHERIT: u64 = 1 << 1;
/// Nothing of the kernel's own is asked for, which an ordinary user may not know.
const EXCLUDE_KERNEL: u64 = 1 << 5;
const EXCLUDE_HYPERVISOR: u64 = 1 << 6;
/// Forks and ends.
const TASK: u64 = 1 << 13;
/// `wakeup` counts bytes.
const WATERMARK: u64 = 1 << 14;
const USE_CLOCK_ID: u64 = 1 << 25;

/// `struct perf_event_attr`, fifth version.
#[repr(C)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    /// Period, sample type, read format.
    sampling: [u64; 3],
    flags: u64,
    wakeup: u32,
    breakpoint: u32,
    /// Two configurations, branches, registers.
    details: [u64; 4],
    stack: u32,
    clock_id: i32,
    registers: u64,
    auxiliary: [u32; 2],
}

/// Where the places are of what the kernel has written, and we have read, in its page (`struct perf_event_mmap_page`).
const HEAD: usize = 1024;
const TAIL: usize = 1032;

/// What happens on one processor to a process, from now on, and to all that it makes.
#[derive(Debug)]
pub(crate) struct Ring {
    /// A page of the kernel's, then the records.
    place: NonNull<u8>,
    page: usize,
    event: OwnedFd,
}

// SAFETY: the mapping is this value's own, wherever that goes.
unsafe impl Send for Ring {}

impl Ring {
    /// Bytes of records that wait to be read; a power of two. A fork and an end take 64.
    const BYTES: usize = 32 << 10;

    /// Takes the right to look into it. EPERM, EACCES: the host refuses it; EPERM also where too much memory is held.
    pub(crate) fn open(pid: Pid, processor: u32) -> rustix::io::Result<Self> {
        let size = u32::try_from(size_of::<Attributes>()).expect("it is small");
        let attributes = Attributes {
            kind: TYPE_SOFTWARE,
            size,
            config: DUMMY,
            sampling: [0; 3],
            flags: INHERIT | EXCLUDE_KERNEL | EXCLUDE_HYPERVISOR | TASK | WATERMARK | USE_CLOCK_ID,
            wakeup: u32::try_from(Self::BYTES / 2).expect("it is small"),
            breakpoint: 0,
            details: [0; 4],
            stack: 0,
            clock_id: libc::CLOCK_MONOTONIC,
            registers: 0,
            auxiliary: [0; 2],
        };
        let processor = i32::try_from(processor).map_err(|_| Errno::INVAL)?;
        let pid = pid.as_raw_nonzero().get();
        // SAFETY: the structure has the size that it names, and lives for the call.
        let event = check(unsafe {
            libc::syscall(libc::SYS_perf_event_open, &raw const attributes, pid, processor, -1, CLOSE_ON_EXEC)
        })?;
        // SAFETY: the kernel has just made it for us.
        let event = unsafe { OwnedFd::from_raw_fd(RawFd::try_from(event).map_err(|_| Errno::BADF)?) };
        let page = rustix::param::page_size();
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a new mapping.
        let place = unsafe { mmap(std::ptr::null_mut(), page + Self::BYTES, protection, flags, &event, 0)? };
        Ok(Self { place: NonNull::new(place.cast()).ok_or(Errno::NOMEM)?, page, event })
    }

    /// Moves what has come to `records`: each a `struct perf_event_header` and what belongs to it, whole.
    pub(crate) fn take(&mut self, records: &mut Vec<u8>) {
        let (head, tail) = (self.counter(HEAD), self.counter(TAIL));
        let (from, to) = (tail.load(Ordering::Relaxed), head.load(Ordering::Acquire));
        // Both only rise; the kernel writes no more than there is room for.
        let length = usize::try_from(to.wrapping_sub(from)).unwrap_or(0).min(Self::BYTES);
        let at = usize::try_from(from % Self::BYTES as u64).expect("it is less than the bytes");
        let first = length.min(Self::BYTES - at);
        for (at, length) in [(at, first), (0, length - first)] {
            // SAFETY: the piece lies within the mapping, and the kernel leaves what was not read yet as it is.
            records.extend_from_slice(unsafe {
                std::slice::from_raw_parts(self.place.as_ptr().add(self.page + at), length)
            });
        }
        tail.store(to, Ordering::Release);
    }

    fn counter(&self, at: usize) -> &AtomicU64 {
        // SAFETY: the kernel's page is mapped as long as this value is, and keeps an aligned number there, which both
        // sides use as an atomic one.
        unsafe { AtomicU64::from_ptr(self.place.as_ptr().add(at).cast()) }
    }
}

/// Readable when it is half full: to be told of each record would take the time of who makes and ends processes.
impl AsFd for Ring {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: nobody has a reference into it.
        let _ = unsafe { rustix::mm::munmap(self.place.as_ptr().cast(), self.page + Self::BYTES) };
    }
}
