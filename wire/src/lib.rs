//! Wire protocol v1 of agentvm: every message type, the binary frame, the limits, the error codes and the sans-I/O
//! connection core that both ends run.
//!
//! The contract for clients in other languages is `PROTOCOL.md` beside this crate.

#![forbid(unsafe_code)]

pub mod bytes64;
pub mod connection;
pub mod error;
#[cfg(feature = "schema")]
pub mod golden;
pub mod id;
pub mod launch;
pub mod message;
pub mod observer;
pub mod process;
#[cfg(feature = "schema")]
pub mod protocol_md;
pub mod resource;
#[cfg(feature = "schema")]
pub mod schema;
pub mod session;
pub mod stdio;
mod text;
pub mod vm;
