//! A session: the greeting that opens it and the limits it runs under.

use serde::{Deserialize, Serialize};

use crate::error::{Code, Rejection};

/// The WebSocket subprotocol: names the framing; `hello` alone negotiates the version.
pub const SUBPROTOCOL: &str = "agentvm.v1";

/// The protocol version this crate speaks.
pub const PROTOCOL: u32 = 1;

/// Body of `hello`, the first message of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Hello {
    /// Lowest protocol version the client speaks.
    pub protocol_min: u32,
    /// Highest.
    pub protocol_max: u32,
    /// Who is calling.
    pub client: Peer,
    /// The listener's token; an inherited socket needs none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
}

/// One end of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Peer {
    /// `agentvm-sdk`, `agentvm-sidecar`, …
    pub name: String,
    /// Its version.
    pub version: String,
    /// Its build id; two ends of one workspace must carry the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build: Option<String>,
}

/// Body of `welcome`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Welcome {
    /// The version both will speak.
    pub protocol: u32,
    /// Who answers.
    pub sidecar: Peer,
    /// `linux`.
    pub os: String,
    /// `x86_64`, `aarch64`.
    pub arch: String,
    /// Names the session in logs.
    pub session: String,
    /// How long the session outlives a lost connection; 0 on an inherited socket and on Unix sockets.
    pub grace_ms: u64,
    /// The limits the sidecar holds the session to.
    pub limits: Limits,
    /// Optional parts of the protocol that this sidecar carries.
    #[serde(default)]
    pub features: Vec<String>,
}

/// Limits of a session; the defaults are those of [`Limits::default`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Limits {
    /// Largest control message: 16 MiB.
    pub max_text_bytes: u64,
    /// Largest binary message, header included: 256 KiB.
    pub max_binary_bytes: u64,
    /// Bytes a sender may be ahead of a stream's consumer, and each stream's first limit, unless the request that opens
    /// the stream says less: 256 KiB.
    pub window_bytes: u64,
    /// The least that a request may say: 16 KiB.
    pub min_window_bytes: u64,
    /// The windows of all open streams together, beyond which a new stream gets the least one: 64 MiB.
    pub max_in_flight_bytes: u64,
    /// Requests that may wait for their answer at once: 4096.
    pub max_requests: u64,
    /// VMs of one session: 4096.
    pub max_vms: u64,
    /// Live processes of one VM that the session started: 4096.
    pub max_processes: u64,
    /// Observations of one whole VM at once: 64.
    pub max_observers: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_text_bytes: 16 << 20,
            max_binary_bytes: 256 << 10,
            window_bytes: 256 << 10,
            min_window_bytes: 16 << 10,
            max_in_flight_bytes: 64 << 20,
            max_requests: 4096,
            max_vms: 4096,
            max_processes: 4096,
            max_observers: 64,
        }
    }
}

/// Picks the highest version both ends speak, or rejects naming both ranges.
pub fn negotiate(hello: &Hello) -> Result<u32, Rejection> {
    if hello.protocol_min <= PROTOCOL && PROTOCOL <= hello.protocol_max {
        return Ok(PROTOCOL);
    }
    let (min, max) = (hello.protocol_min, hello.protocol_max);
    let message = format!("client speaks protocol {min} to {max}, sidecar speaks {PROTOCOL} to {PROTOCOL}");
    Err(Rejection::new(Code::VERSION_MISMATCH, message))
}

/// The build id this end sends: the crate's version and a hash of its message definitions.
pub const BUILD: &str = concat!(env!("CARGO_PKG_VERSION"), "+", env!("AGENTVM_WIRE_HASH"));
