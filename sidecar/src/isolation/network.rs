//! The network of a VM: a namespace of its own in which only the loopback interface is up.

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use super::{At as _, Fault, Step};

/// Brings loopback up; there is no other interface.
pub(crate) fn bring_loopback_up() -> Result<(), Fault> {
    let socket =
        socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None).at(Step::Loopback)?;
    crate::sys::network::bring_loopback_up(&socket).at(Step::Loopback)
}
