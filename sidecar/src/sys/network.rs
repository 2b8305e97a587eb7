//! The one interface request init makes (`netdevice(7)`).

use std::os::fd::{AsFd, AsRawFd as _};

use super::check;

/// `IFF_UP`.
const UP: libc::c_short = 1;

/// Brings `lo` up in the network namespace of `socket`; the kernel then gives it 127.0.0.1 and `::1`.
pub(crate) fn bring_loopback_up(socket: impl AsFd) -> rustix::io::Result<()> {
    let mut request = libc::ifreq {
        ifr_name: [0; libc::IFNAMSIZ],
        ifr_ifru: libc::__c_anonymous_ifr_ifru { ifru_flags: UP },
    };
    request.ifr_name[..2]
        .copy_from_slice(&[b'l'.cast_signed() as libc::c_char, b'o'.cast_signed() as libc::c_char]);
    // SAFETY: SIOCSIFFLAGS reads one `ifreq`, whose name is null-terminated and whose flags are set.
    let result = unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request) };
    check(result.into()).map(drop)
}
