//! Seccomp user notification (`seccomp_unotify(2)`): the listener's side.

use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap};

use super::check;

/// `SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP`.
const SYNC_WAKE_UP: u64 = 1;

/// A call that a thread waits to make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Call {
    /// Names it for the listener.
    pub id: u64,
    /// The thread.
    pub thread: u32,
    /// Number of the system call.
    pub number: libc::c_long,
    /// Its arguments.
    pub arguments: [u64; 6],
}

/// Where calls are taken to: memory that outlives this process, so that who holds it too can answer the call that was taken
/// last. The kernel gives a call to one receiver, and to no other should that die.
#[derive(Debug)]
pub(crate) struct Inbox {
    place: NonNull<libc::seccomp_notif>,
    memory: OwnedFd,
}

// SAFETY: the mapping is this value's own, wherever that goes.
unsafe impl Send for Inbox {}

impl Inbox {
    const BYTES: usize = size_of::<libc::seccomp_notif>();

    pub(crate) fn new() -> rustix::io::Result<Self> {
        let memory = memfd_create(c"call", MemfdFlags::CLOEXEC)?;
        rustix::fs::ftruncate(&memory, Self::BYTES as u64)?;
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a new mapping, of memory that nobody makes shorter.
        let place = unsafe { mmap(std::ptr::null_mut(), Self::BYTES, protection, flags, &memory, 0)? };
        let place = NonNull::new(place.cast()).ok_or(Errno::NOMEM)?;
        Ok(Self { place, memory })
    }

    /// For [`taken_last`].
    pub(crate) fn memory(&self) -> BorrowedFd<'_> {
        self.memory.as_fd()
    }

    /// Takes the next call there is. ENOENT: whoever wanted to make it was interrupted.
    pub(crate) fn receive(&mut self, listener: impl AsFd) -> rustix::io::Result<Call> {
        // SAFETY: the mapping is a page; all-zero is a valid value, and what the kernel asks for. Others only read it.
        let call = unsafe {
            self.place.write(std::mem::zeroed());
            request(listener, libc::SECCOMP_IOCTL_NOTIF_RECV, self.place.as_ptr().cast())?;
            self.place.read()
        };
        let libc::seccomp_notif { id, pid, data, .. } = call;
        Ok(Call { id, thread: pid, number: data.nr.into(), arguments: data.args })
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        // SAFETY: nobody has a reference into it.
        let _ = unsafe { rustix::mm::munmap(self.place.as_ptr().cast(), Self::BYTES) };
    }
}

/// The call that was taken last by the [`Inbox`] of this memory; it may have been answered.
pub(crate) fn taken_last(memory: impl AsFd) -> Option<u64> {
    // It comes first in the structure.
    let mut id = [0; size_of::<u64>()];
    let read = rustix::io::pread(memory, &mut id, 0).ok()?;
    (read == id.len()).then(|| u64::from_ne_bytes(id)).filter(|id| *id != 0)
}

/// Lets a call be made. ENOENT as above.
pub(crate) fn let_go(listener: impl AsFd, id: u64) -> rustix::io::Result<()> {
    let flags = u32::try_from(libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE).expect("it is a small number");
    let mut answer = libc::seccomp_notif_resp { id, val: 0, error: 0, flags };
    request(listener, libc::SECCOMP_IOCTL_NOTIF_SEND, (&raw mut answer).cast())
}

/// Whether a thread still waits to make a call: what was read of its memory is then its own.
pub(crate) fn is_valid(listener: impl AsFd, mut id: u64) -> bool {
    request(listener, libc::SECCOMP_IOCTL_NOTIF_ID_VALID, (&raw mut id).cast()).is_ok()
}

/// Wakes both ends on one processor, where the kernel can.
pub(crate) fn wake_in_step(listener: impl AsFd) {
    // SAFETY: this request takes its flags by value.
    unsafe { libc::ioctl(listener.as_fd().as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SET_FLAGS, SYNC_WAKE_UP) };
}

fn request(listener: impl AsFd, request: libc::Ioctl, value: *mut libc::c_void) -> rustix::io::Result<()> {
    // SAFETY: each of these requests reads and writes one structure, which the caller passes.
    check(unsafe { libc::ioctl(listener.as_fd().as_raw_fd(), request, value) }.into()).map(drop)
}
