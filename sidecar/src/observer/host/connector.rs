//! A socket on which the kernel tells of every fork, execution and end (`NETLINK_CONNECTOR`, `CN_IDX_PROC`).

#[cfg(test)]
mod tests;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt};

use crate::word::word;

/// `CN_IDX_PROC`, `CN_VAL_PROC`, and the group of both.
const PROCESSES: u32 = 1;
/// `PROC_CN_MCAST_LISTEN`.
const LISTEN: u32 = 1;
/// `PROC_CN_MCAST_IGNORE`.
const IGNORE: u32 = 2;

/// `proc_event.what`.
const NONE: u32 = 0;
const FORK: u32 = 1;
const EXEC: u32 = 2;
const EXIT: u32 = 0x8000_0000;

/// `NLMSG_DONE`.
const DONE: u16 = 3;
/// Bytes of `struct nlmsghdr`, and of `struct cn_msg`.
const HEADER: usize = 16;
const CONNECTOR: usize = 20;

/// What may wait in the kernel, some ten thousand messages; an ordinary user gets less.
const WAITING_BYTES: usize = 8 << 20;
/// One message, with room.
pub(super) const MESSAGE_BYTES: usize = 4 << 10;

/// Why there is nothing to be heard.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unheard {
    /// There is no such socket.
    #[error("this kernel has no process connector (CONFIG_PROC_EVENTS): {0}")]
    Absent(Errno),
    /// Nobody takes what is said.
    #[error("the kernel's process connector is only there in the host's own network namespace: {0}")]
    OtherNetwork(Errno),
    /// It was refused.
    #[error("the kernel's process connector takes root of the host: {0}")]
    Refused(Errno),
    /// It was not answered.
    #[error("the kernel's process connector only answers in the host's own user and pid namespaces")]
    Silent,
    /// No thread can be had.
    #[error("no thread to read what the kernel tells: {0}")]
    NoReader(std::io::Error),
}

/// Something that happened on the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Message {
    /// The answer to a request to listen.
    Answer { to: u32, errno: u32 },
    /// A process was made.
    Forked { pid: u32, parent: u32, at_ns: u64 },
    /// A thread was made.
    Threaded { pid: u32, thread: u32 },
    /// A process executes another program.
    Executed { pid: u32, at_ns: u64 },
    /// A thread has ended, with this wait status.
    Ended { pid: u32, thread: u32, status: u32, at_ns: u64 },
}

/// The socket. The kernel is told when nobody listens any more.
#[derive(Debug)]
pub(super) struct Connector(OwnedFd);

impl Connector {
    /// Listens from now on. The kernel answers at once, or never.
    pub(super) fn listen() -> Result<Self, Unheard> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let protocol = Some(netlink::CONNECTOR);
        let socket = rustix::net::socket_with(AddressFamily::NETLINK, SocketType::DGRAM, flags, protocol)
            .map_err(Unheard::Absent)?;
        // More than an ordinary user gets it may not ask for.
        if sockopt::set_socket_recv_buffer_size_force(&socket, WAITING_BYTES).is_err() {
            let _ = sockopt::set_socket_recv_buffer_size(&socket, WAITING_BYTES);
        }
        rustix::net::bind(&socket, &SocketAddrNetlink::new(0, PROCESSES)).map_err(Unheard::Refused)?;
        let connector = Self(socket);
        connector.say(LISTEN).map_err(|errno| match errno {
            Errno::CONNREFUSED => Unheard::OtherNetwork(errno),
            errno => Unheard::Refused(errno),
        })?;
        let mut buffer = [0; MESSAGE_BYTES];
        loop {
            let heard = match connector.receive(&mut buffer) {
                Ok(heard) => heard,
                // Events came so fast that the answer had no room.
                Err(Errno::NOBUFS) => return Ok(connector),
                Err(_) => return Err(Unheard::Silent),
            };
            for message in heard {
                match message {
                    Message::Answer { to, errno: 0 } if to == own_number() => return Ok(connector),
                    Message::Answer { to, errno } if to == own_number() => {
                        return Err(Unheard::Refused(Errno::from_raw_os_error(errno.cast_signed())));
                    }
                    // From before anybody asked.
                    _ => {}
                }
            }
        }
    }

    /// What came next, without waiting. ENOBUFS: something was lost; AGAIN: nothing came.
    pub(super) fn receive(&self, buffer: &mut [u8]) -> rustix::io::Result<Vec<Message>> {
        let (length, _, sender) = rustix::net::recvfrom(&self.0, &mut *buffer, RecvFlags::DONTWAIT)?;
        let of_kernel = |sender| SocketAddrNetlink::try_from(sender).is_ok_and(|sender| sender.pid() == 0);
        // Others may send to it, too.
        if !sender.is_some_and(of_kernel) {
            return Ok(Vec::new());
        }
        Ok(messages(&buffer[..length]))
    }

    fn say(&self, what: u32) -> rustix::io::Result<()> {
        let length = u32::try_from(HEADER + CONNECTOR + size_of::<u32>()).expect("it is small");
        let header = [length, u32::from(DONE), 0, 0];
        // Length and flags share a word; the kernel reads it as it lies in memory.
        let [low, high] = 4_u16.to_ne_bytes();
        let connector = [PROCESSES, PROCESSES, 0, own_number(), u32::from_ne_bytes([low, high, 0, 0]), what];
        let bytes: Vec<u8> = header.into_iter().chain(connector).flat_map(u32::to_ne_bytes).collect();
        rustix::net::send(&self.0, &bytes, SendFlags::empty()).map(drop)
    }
}

impl AsFd for Connector {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Drop for Connector {
    fn drop(&mut self) {
        // Older kernels else go on telling nobody.
        let _ = self.say(IGNORE);
    }
}

/// By which answers to others are told from ours: each names one more than it was given.
fn own_number() -> u32 {
    std::process::id()
}

/// What a datagram says; nothing, as far as it is not understood.
pub(super) fn messages(mut bytes: &[u8]) -> Vec<Message> {
    let mut found = Vec::new();
    while let Some(length) = word(bytes, 0).and_then(|length| usize::try_from(length).ok()) {
        if length < HEADER {
            break;
        }
        let Some(message) = bytes.get(..length) else { break };
        found.extend(message_of(message));
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    found
}

fn message_of(bytes: &[u8]) -> Option<Message> {
    if bytes.get(4..6)? != DONE.to_ne_bytes() {
        return None;
    }
    let connector = &bytes[HEADER..];
    if [word(connector, 0)?, word(connector, 4)?] != [PROCESSES; 2] {
        return None;
    }
    let length = u16::from_ne_bytes(*connector.get(16..)?.first_chunk()?);
    let event = connector.get(CONNECTOR..)?.get(..usize::from(length))?;
    // What, processor, time.
    let at_ns = u64::from_ne_bytes(*event.get(8..)?.first_chunk()?);
    let body = |number: usize| word(event, 16 + 4 * number);
    match word(event, 0)? {
        NONE => Some(Message::Answer { to: word(connector, 12)?.wrapping_sub(1), errno: body(0)? }),
        // Thread and process of the parent, then of the child.
        FORK if body(2)? == body(3)? => Some(Message::Forked { pid: body(3)?, parent: body(1)?, at_ns }),
        FORK => Some(Message::Threaded { pid: body(3)?, thread: body(2)? }),
        EXEC => Some(Message::Executed { pid: body(1)?, at_ns }),
        EXIT => Some(Message::Ended { thread: body(0)?, pid: body(1)?, status: body(2)?, at_ns }),
        _ => None,
    }
}
