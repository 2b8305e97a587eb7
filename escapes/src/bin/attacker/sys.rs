//! System calls, bare: a C library might refuse or replace what the kernel shall be asked.

use std::ffi::{CString, c_long};
use std::fs::File;
use std::io;
use std::os::fd::FromRawFd as _;

/// Anything that can be an argument.
#[derive(Clone, Copy)]
pub(crate) struct Word(pub(crate) c_long);

impl From<i32> for Word {
    fn from(value: i32) -> Self {
        Self(value.into())
    }
}

impl From<i64> for Word {
    fn from(value: i64) -> Self {
        Self(value)
    }
}

impl From<u32> for Word {
    fn from(value: u32) -> Self {
        Self(value.into())
    }
}

impl<T> From<&[T]> for Word {
    fn from(value: &[T]) -> Self {
        Self(value.as_ptr() as c_long)
    }
}

impl<T, const N: usize> From<&[T; N]> for Word {
    fn from(value: &[T; N]) -> Self {
        Self(value.as_ptr() as c_long)
    }
}

impl<T, const N: usize> From<&mut [T; N]> for Word {
    fn from(value: &mut [T; N]) -> Self {
        Self(value.as_mut_ptr() as c_long)
    }
}

impl From<&std::ffi::CStr> for Word {
    fn from(value: &std::ffi::CStr) -> Self {
        Self(value.as_ptr() as c_long)
    }
}

/// Makes a system call of up to six arguments.
pub(crate) fn call(number: c_long, words: &[Word]) -> io::Result<c_long> {
    let mut six = [0; 6];
    for (place, word) in six.iter_mut().zip(words) {
        *place = word.0;
    }
    // SAFETY: pointers among the arguments come from references that outlive the call, and whoever passes one names
    // a size that it has; what a call does to this process is what it is made for.
    let result = unsafe { libc::syscall(number, six[0], six[1], six[2], six[3], six[4], six[5]) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// `syscall!(number, argument…)`
macro_rules! syscall {
    ($number:expr $(, $argument:expr)* $(,)?) => {
        $crate::sys::call($number, &[$($crate::sys::Word::from($argument)),*])
    };
}
pub(crate) use syscall;

/// A path as the kernel takes it.
pub(crate) fn path(text: &str) -> CString {
    CString::new(text).expect("a path of ours has no NUL")
}

/// A file that is nowhere but in memory.
pub(crate) fn memory_file() -> io::Result<File> {
    let memory = syscall!(libc::SYS_memfd_create, path("memory").as_c_str(), 0)?;
    // SAFETY: the kernel has just made it, for us.
    Ok(unsafe { File::from_raw_fd(i32::try_from(memory).map_err(io::Error::other)?) })
}

/// Forks; `None` in the child.
pub(crate) fn fork() -> io::Result<Option<i32>> {
    // SAFETY: this program has one thread.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(None),
        pid => Ok(Some(pid)),
    }
}

/// Ends this process at once.
pub(crate) fn exit(code: i32) -> ! {
    // SAFETY: it has no precondition.
    unsafe { libc::_exit(code) }
}

/// Waits for a child; its wait status.
pub(crate) fn wait(pid: i32) -> io::Result<i32> {
    let mut status = [0i32];
    syscall!(libc::SYS_wait4, pid, &mut status, 0, 0)?;
    Ok(status[0])
}

/// Runs something in a child, and gives its result as if it had been run here.
pub(crate) fn in_child(work: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    let Some(pid) = fork()? else {
        exit(work().err().map_or(0, |error| error.raw_os_error().unwrap_or(255)))
    };
    let status = wait(pid)?;
    match (libc::WIFEXITED(status), libc::WEXITSTATUS(status)) {
        (true, 0) => Ok(()),
        (true, errno) => Err(io::Error::from_raw_os_error(errno)),
        (false, _) => Err(io::Error::other("a signal")),
    }
}

/// A child that waits to be killed.
pub(crate) fn idle_child() -> io::Result<i32> {
    if let Some(pid) = fork()? {
        return Ok(pid);
    }
    loop {
        // SAFETY: it has no precondition.
        unsafe { libc::pause() };
    }
}
