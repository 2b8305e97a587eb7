//! `execve(2)` and `_exit(2)`.

use std::ffi::CStr;
use std::ptr;

use rustix::io::Errno;

use super::last_errno;

/// A null-terminated array of strings, as `execve` wants it.
#[derive(Debug)]
pub(crate) struct StringArray<'a> {
    pointers: Vec<*const libc::c_char>,
    _strings: std::marker::PhantomData<&'a CStr>,
}

impl<'a> FromIterator<&'a CStr> for StringArray<'a> {
    fn from_iter<I: IntoIterator<Item = &'a CStr>>(strings: I) -> Self {
        let pointers = strings.into_iter().map(CStr::as_ptr).chain([ptr::null()]).collect();
        Self { pointers, _strings: std::marker::PhantomData }
    }
}

/// Becomes `program`. Returns only if that failed, with the reason.
pub(crate) fn exec(program: &CStr, arguments: &StringArray<'_>, variables: &StringArray<'_>) -> Errno {
    // SAFETY: all three are null-terminated, and the strings live as long as the arrays that borrow them.
    unsafe { libc::execve(program.as_ptr(), arguments.pointers.as_ptr(), variables.pointers.as_ptr()) };
    last_errno()
}

/// Ends this process without running anything that was registered for its end.
pub(crate) fn exit_now(status: i32) -> ! {
    // SAFETY: `_exit` only ends the process.
    unsafe { libc::_exit(status) }
}
