//! Init: PID 1 of a VM, one thread, and the sidecar's side of talking to it.
//!
//! ```text
//!   sidecar                                        init (PID 1)
//!   client: Commands ──── start, signal, read ───► server: epoll loop ──► start: fork, become the guest, exec
//!           Events   ◄─── started, exited, … ─────         │    └─ spare: one child forked ahead
//!                                                          ├─ reap: waitid for everything in the VM
//!                                                          ├─ tree: find and kill by UTS namespace
//!                                                          └─ helper: short-lived, reads /proc: list, inspect
//! ```
//!
//! Init is forked by the zygote and never executes anything, so no capability inside the VM reaches its memory. It
//! never blocks: each call it makes is non-blocking or bounded. It ends when its socket is closed, and the kernel then
//! ends everything else in the VM.

mod boot;
pub mod client;
mod clock;
mod cpu;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzz;
mod helper;
mod inspect;
mod list;
mod members;
mod messages;
mod place;
mod reap;
mod rehearsal;
mod rows;
mod server;
mod signal;
mod spare;
mod start;
mod stat;
mod strings;
mod table;
mod terms;
mod tree;
mod usage;

use std::os::fd::{AsFd as _, OwnedFd};

pub(crate) use client::now_ns;
pub use client::{Commands, Event, Events, MemoryLimit, Page, ReadError, StartSpec, Stdio};
pub(crate) use helper::MAX_HELPERS;
pub(crate) use list::{MAX_ARGS, MAX_ARGS_BYTES};
pub(crate) use members::{Members, numbers};
pub(crate) use messages::{Boot, Reading};
pub use messages::{Exit, StartStep};
#[cfg(test)]
pub(crate) use messages::{Reply, Request};
pub(crate) use reap::now_ms;
pub(crate) use rows::Handle;
pub use rows::Row;
pub(crate) use stat::{Stat, parse as parse_stat, ticks_at};
pub use usage::Used;

use crate::isolation::Fault;
use crate::isolation::base::Base;
use crate::isolation::cgroup::Entry;
use crate::isolation::niceness::Niceness;
use crate::isolation::plan::Plan;
use crate::isolation::private_folder::PrivateFolder;
use crate::isolation::report::Facts;
use crate::isolation::seccomp::Programs;
use crate::packet;
use crate::sys::{SingleThreaded, exec};
use terms::Terms;

/// What a process that becomes init comes with.
#[derive(Debug)]
pub(crate) struct Arrival<'a> {
    /// To the sidecar.
    pub socket: &'a OwnedFd,
    /// Says when the id maps are written, where there are any.
    pub go: Option<OwnedFd>,
    /// The VM's groups.
    pub entry: Entry,
    pub niceness: Niceness,
}

/// Is init, in a process the zygote has just cloned.
pub(crate) fn run(
    plan: &Plan,
    base: &Base,
    programs: &Programs,
    arrival: Arrival<'_>,
    proof: SingleThreaded,
) -> ! {
    let socket = arrival.socket;
    let status = match boot::boot(plan, base, programs, arrival, proof).transpose() {
        None => 0,
        Some(booted) => serve(socket, booted, proof),
    };
    exec::exit_now(status)
}

/// Is the init of a VM without namespaces, in a process its supervisor has just forked.
pub(crate) fn run_on_host(
    plan: &Plan,
    folder: &PrivateFolder,
    arrival: Arrival<'_>,
    proof: SingleThreaded,
) -> ! {
    let socket = arrival.socket;
    let status = serve(socket, boot::boot_on_host(plan, folder, arrival), proof);
    // The supervisor does it too, unless a guest has ended that.
    if let Ok(members) = Members::descendants() {
        members.end_all();
    }
    exec::exit_now(status)
}

/// Says how it went, and serves until the sidecar has gone.
fn serve(socket: &OwnedFd, booted: Result<(Facts, Terms<'_>), Fault>, proof: SingleThreaded) -> i32 {
    match booted {
        Ok((facts, terms)) => match say_ready(socket, facts) {
            Ok(handed) => server::serve(socket, &handed, &terms, proof),
            Err(_) => 1,
        },
        Err(fault) => {
            // If this fails the sidecar has gone, and so does the VM.
            let _ = packet::send(socket, &packet::encode(&Boot::Failed(fault)), &[]);
            1
        }
    }
}

/// With one end of the socket for what is handed to the spare; returns the other.
fn say_ready(socket: &OwnedFd, facts: Facts) -> rustix::io::Result<OwnedFd> {
    let (sidecars, ours) = packet::pair()?;
    packet::send(socket, &packet::encode(&Boot::Ready(facts)), &[sidecars.as_fd()])?;
    Ok(ours)
}
