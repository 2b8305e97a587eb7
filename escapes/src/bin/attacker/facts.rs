//! What the host tells the attacker, so that it knows what to aim at.

use std::io;
use std::net::IpAddr;
use std::sync::OnceLock;

use serde::Deserialize;

static FACTS: OnceLock<Facts> = OnceLock::new();

#[derive(Debug, Deserialize)]
pub(crate) struct Facts {
    /// A process outside the VM.
    pub(crate) host_pid: u32,
    /// Listeners on the host's loopback, v4 and v6; `None` where the host has no such address.
    pub(crate) listeners: [Option<u16>; 2],
    /// An address of the host on a network, if it has one.
    pub(crate) lan: Option<IpAddr>,
    /// Key of the host's shared memory and message queue: see `hold.rs`.
    pub(crate) key: i32,
    /// Whether the VM's report says that its memory is limited.
    pub(crate) memory_is_limited: bool,
}

pub(crate) fn know(json: &str) -> io::Result<()> {
    let facts = serde_json::from_str(json)?;
    FACTS.set(facts).map_err(|_| io::Error::other("told twice"))
}

pub(crate) fn facts() -> &'static Facts {
    FACTS.get().expect("they are told before anything is tried")
}
