//! Keepers: processes that watch what happens in a VM, each for one VM and only while something is observed.
//!
//! ```text
//!   sidecar ── Orders, Request, a socket per start ──► keeper ──► seizes, or is given a listener
//!           ◄── Sightings, listeners to answer later ──   ▲
//!                                                         └── "here" / "go" ── the child that becomes the process
//! ```
//!
//! A keeper is outside its VM's pid namespace: no guest can stop, end or see it. Init never traces. What is watched runs
//! on if the keeper dies.

mod alarm;
mod calls;
mod client;
mod gaps;
pub(crate) mod handshake;
mod held;
mod listeners;
mod means;
mod messages;
mod notification;
mod polling;
mod proc;
mod ptrace;
mod records;
mod run;
mod sighting;
mod sink;

pub use client::{Keeper, Sightings};
pub use gaps::{of_files, of_network, of_processes};
pub(crate) use proc::{Proc, pid_of};
#[cfg(test)]
pub(crate) use records::records_can_be_had;
pub(crate) use run::run;
pub use sighting::{
    Address, Backend, Executed, File, FileAct, Key, Loss, MAX_TEXT_BYTES, Network, NetworkAct, Orders,
    Outcome, Running, Sighting, Subject, Wanted, What,
};
