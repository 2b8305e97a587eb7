//! How a process is taken under watch before it executes anything: what its child, which still runs our code, and a
//! keeper say to each other over a socket of that start alone.
//!
//! ```text
//!   child ── Here ──► keeper: seizes it by the pid that came with the message
//!         ◄── Go ────
//!   or    ◄── Trap ──
//!         ── Trapped: its listener's number ──► keeper takes the listener, the sidecar gets another
//!         ◄── Go ────
//! ```
//!
//! A child waits for a second, then it goes on unwatched. Only behind `Trap` it cannot: then it gives up, and init starts
//! another one that nobody watches.

use std::os::fd::{AsRawFd as _, OwnedFd};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown};
use rustix::process::{
    DumpableBehavior, Pid, PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open,
    set_dumpable_behavior,
};
use rustix::time::Timespec;
use serde::{Deserialize, Serialize};

use crate::packet::{self, Packet};
use crate::sys::seccomp::{Instruction, install_listener};

/// How long a keeper may be silent.
pub(super) const SILENCE: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// From the child.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Hello {
    /// It waits.
    Here {
        /// Its pid in the VM.
        pid: u32,
    },
    /// The program is installed.
    Trapped {
        /// Number of the listener, in the child.
        listener: i32,
    },
    /// It is not.
    Refused {
        /// Why.
        errno: i32,
    },
}

/// From the keeper.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Order {
    /// Execute your command.
    Go,
    /// Install this seccomp program, with a listener.
    Trap(Vec<Instruction>),
}

/// A program is installed that nobody answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Forsaken;

/// The child's part. Guests cannot look into it: it holds init's capabilities still, which none of them does.
pub(crate) fn present_itself(keeper: &OwnedFd) -> Result<(), Forsaken> {
    // A keeper has no rights over memory that is not to be looked into, unless it is root of the host.
    let _ = set_dumpable_behavior(DumpableBehavior::Dumpable);
    let trapped = take_orders(keeper);
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    trapped
}

fn take_orders(keeper: &OwnedFd) -> Result<(), Forsaken> {
    let pid = getpid().as_raw_nonzero().get().unsigned_abs();
    if say(keeper, Hello::Here { pid }).is_err() {
        return Ok(());
    }
    // Open until exec, so that the keeper finds it by its number.
    let mut listener = None;
    loop {
        match hear(keeper) {
            Some(Order::Go) => return Ok(()),
            Some(Order::Trap(program)) => {
                let hello = match install_listener(&program) {
                    Ok(descriptor) => Hello::Trapped { listener: listener.insert(descriptor).as_raw_fd() },
                    Err(errno) => Hello::Refused { errno: errno.raw_os_error() },
                };
                let _ = say(keeper, hello);
            }
            None => return listener.map_or(Ok(()), |_| Err(Forsaken)),
        }
    }
}

/// By `sendto(2)` without an address, which no listener is asked about, as it would be about `sendmsg(2)`.
fn say(keeper: &OwnedFd, hello: Hello) -> rustix::io::Result<()> {
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    rustix::net::send(keeper, &packet::encode(&hello), flags).map(drop)
}

fn hear(keeper: &OwnedFd) -> Option<Order> {
    if !await_input(keeper) {
        return None;
    }
    let order = packet::receive(keeper, &mut [0; packet::MAX_BYTES], RecvFlags::DONTWAIT);
    Some(order.ok()??.message)
}

/// Whether something came in time.
fn await_input(socket: &OwnedFd) -> bool {
    let mut watched = [PollFd::new(socket, PollFlags::IN)];
    rustix::io::retry_on_intr(|| poll(&mut watched, Some(&SILENCE))).is_ok_and(|ready| ready == 1)
}

/// Why there is no listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Untrapped {
    /// The program is not installed: the child can go on.
    Refused(Errno),
    /// It may be.
    Lost(Errno),
}

/// A child that waits to be taken under watch, as its keeper sees it.
#[derive(Debug)]
pub(super) struct Waiting<'a> {
    socket: &'a OwnedFd,
    /// As the host counts.
    pub(super) pid: Pid,
    /// As its VM counts.
    pub(super) pid_inside: u32,
}

impl<'a> Waiting<'a> {
    /// Waits until one says that it is there; `None` if none will.
    pub(super) fn await_it(socket: &'a OwnedFd) -> Option<Self> {
        let mut buffer = [0; 64];
        let received = packet::receive_from(socket, &mut buffer, RecvFlags::empty());
        match received.ok()?? {
            (Packet { message: Hello::Here { pid: pid_inside }, .. }, Some(pid)) => {
                Some(Self { socket, pid, pid_inside })
            }
            _ => None,
        }
    }

    /// Has it install a program, and takes the listener. It cannot go on without an answer from then on, unless that
    /// failed: [`Self::go`] or [`Self::forsake`].
    pub(super) fn trap(&self, program: Vec<Instruction>) -> Result<OwnedFd, Untrapped> {
        packet::send(self.socket, &packet::encode(&Order::Trap(program)), &[]).map_err(Untrapped::Refused)?;
        if !await_input(self.socket) {
            return Err(Untrapped::Lost(Errno::TIMEDOUT));
        }
        let heard = packet::receive::<Hello>(self.socket, &mut [0; 64], RecvFlags::DONTWAIT);
        match heard.map_err(Untrapped::Lost)?.map(|packet| packet.message) {
            Some(Hello::Trapped { listener }) => {
                let pidfd = pidfd_open(self.pid, PidfdFlags::empty()).map_err(Untrapped::Lost)?;
                pidfd_getfd(&pidfd, listener, PidfdGetfdFlags::empty()).map_err(Untrapped::Lost)
            }
            Some(Hello::Refused { errno }) => Err(Untrapped::Refused(Errno::from_raw_os_error(errno))),
            _ => Err(Untrapped::Lost(Errno::PIPE)),
        }
    }

    /// Has it give up: it starts anew, and nobody watches.
    pub(super) fn forsake(self) {
        let _ = rustix::net::shutdown(self.socket, Shutdown::Both);
    }

    /// Lets it go on. It may have done so by itself.
    pub(super) fn go(self) {
        let _ = packet::send(self.socket, &packet::encode(&Order::Go), &[]);
    }
}
