//! Names of errors and signals.

use std::io;

macro_rules! names {
    ($($name:ident)*) => { &[$((libc::$name, stringify!($name))),*] };
}

const ERRORS: &[(i32, &str)] = names! {
    EPERM ENOENT ESRCH EINTR EIO ENXIO E2BIG ENOEXEC EBADF ECHILD EAGAIN ENOMEM EACCES EFAULT ENOTBLK EBUSY EEXIST EXDEV
    ENODEV ENOTDIR EISDIR EINVAL ENFILE EMFILE ENOTTY ETXTBSY EFBIG ENOSPC ESPIPE EROFS EMLINK EPIPE ENOSYS ENOTEMPTY
    ELOOP ENODATA EOVERFLOW EUSERS EOPNOTSUPP EPROTONOSUPPORT ESOCKTNOSUPPORT EPFNOSUPPORT EAFNOSUPPORT EADDRNOTAVAIL
    ENETUNREACH ECONNREFUSED ETIMEDOUT EHOSTUNREACH ESTALE ENOKEY EKEYREJECTED
};
const SIGNALS: &[(i32, &str)] =
    names! { SIGABRT SIGALRM SIGBUS SIGFPE SIGILL SIGKILL SIGSEGV SIGSYS SIGTERM SIGTRAP };

pub(crate) fn of(error: &io::Error) -> String {
    error.raw_os_error().map_or_else(|| error.to_string(), |number| name(ERRORS, number))
}

pub(crate) fn signal(number: i32) -> String {
    name(SIGNALS, number)
}

fn name(names: &[(i32, &str)], number: i32) -> String {
    let found = names.iter().find(|(known, _)| *known == number);
    found.map_or_else(|| number.to_string(), |(_, name)| (*name).to_owned())
}
