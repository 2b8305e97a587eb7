//! Packets: one message and its descriptors over a `SOCK_SEQPACKET` pair, as sidecar, zygote and init exchange them.

#[cfg(test)]
mod tests;

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use rustix::process::Pid;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Largest message in bytes, so that init needs one small buffer.
pub(crate) const MAX_BYTES: usize = 16 << 10;

/// Most descriptors that come with one message.
pub(crate) const MAX_DESCRIPTORS: usize = 6;

/// What came in.
#[derive(Debug)]
pub(crate) struct Packet<M> {
    /// The message.
    pub message: M,
    /// Descriptors in the order they were sent; close-on-exec.
    pub descriptors: Vec<OwnedFd>,
}

/// Two connected ends.
pub(crate) fn pair() -> rustix::io::Result<(OwnedFd, OwnedFd)> {
    socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
}

/// Whether a descriptor is a socket of this kind.
pub(crate) fn is_packet_socket(descriptor: BorrowedFd<'_>) -> bool {
    rustix::net::sockopt::socket_type(descriptor).is_ok_and(|kind| kind == SocketType::SEQPACKET)
}

/// Encodes a message.
pub(crate) fn encode(message: &impl Serialize) -> Vec<u8> {
    postcard::to_stdvec(message).expect("a message is plain data and the buffer grows")
}

/// Decodes a message; EBADMSG if it is none.
pub(crate) fn decode<M: DeserializeOwned>(bytes: &[u8]) -> rustix::io::Result<M> {
    postcard::from_bytes(bytes).map_err(|_| Errno::BADMSG)
}

/// Sends an encoded message; EAGAIN if the other end has not yet taken what was sent before.
pub(crate) fn send(
    socket: impl AsFd,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> rustix::io::Result<()> {
    if bytes.len() > MAX_BYTES {
        return Err(Errno::MSGSIZE);
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(Errno::TOOMANYREFS);
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    rustix::io::retry_on_intr(|| sendmsg(socket.as_fd(), &[IoSlice::new(bytes)], &mut control, flags))?;
    Ok(())
}

/// Receives a message into `buffer`; `None` once the other end is closed. Waits only if `flags` let it.
pub(crate) fn receive<M: DeserializeOwned>(
    socket: impl AsFd,
    buffer: &mut [u8],
    flags: RecvFlags,
) -> rustix::io::Result<Option<Packet<M>>> {
    Ok(receive_from(socket, buffer, flags)?.map(|(packet, _)| packet))
}

/// The same, with the pid of the sender where the socket asks for that (`SO_PASSCRED`).
pub(crate) fn receive_from<M: DeserializeOwned>(
    socket: impl AsFd,
    buffer: &mut [u8],
    flags: RecvFlags,
) -> rustix::io::Result<Option<(Packet<M>, Option<Pid>)>> {
    let mut space =
        [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS), ScmCredentials(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = flags | RecvFlags::CMSG_CLOEXEC;
    let received = rustix::io::retry_on_intr(|| {
        recvmsg(socket.as_fd(), &mut [IoSliceMut::new(buffer)], &mut control, flags)
    })?;
    let (mut descriptors, mut sender) = (Vec::new(), None);
    for message in control.drain() {
        match message {
            RecvAncillaryMessage::ScmRights(passed) => descriptors.extend(passed),
            RecvAncillaryMessage::ScmCredentials(credentials) => sender = Some(credentials.pid),
            _ => {}
        }
    }
    if received.bytes == 0 {
        return Ok(None);
    }
    if received.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
        return Err(Errno::MSGSIZE);
    }
    let message = decode(&buffer[..received.bytes])?;
    Ok(Some((Packet { message, descriptors }, sender)))
}
