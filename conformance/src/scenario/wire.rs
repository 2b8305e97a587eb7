//! What only a driver that speaks the protocol itself can be told: connections beside the VM's own, written to and read
//! from message by message.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::data::Data;

/// A connection to the sidecar.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Connect {
    /// What later steps call it.
    #[serde(rename = "as")]
    pub name: String,
    /// The subprotocol that is asked for, the right one if not set; empty: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subprotocol: Option<String>,
    /// What a browser would send.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin: Option<String>,
    /// Whether a session is opened on it, by request 1.
    #[serde(default = "yes")]
    pub hello: bool,
}

/// A text message.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SendMessage {
    /// The connection.
    pub on: String,
    /// Sent as JSON. Of its strings, `$token` stands for the sidecar's token, `$vm` for the VM that was last created on
    /// this connection (in what is received, too), `$other_vm` for the VM of the scenario.
    pub message: Map<String, Value>,
    /// How often, under an id that rises.
    #[serde(default = "once")]
    pub times: u64,
}

/// A text message as it stands.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SendText {
    /// The connection.
    pub on: String,
    /// It need be neither JSON nor UTF-8.
    pub text: Data,
}

/// A binary message.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SendFrame {
    /// The connection.
    pub on: String,
    /// The stream.
    pub stream: u32,
    /// Of the first byte.
    #[serde(default)]
    pub offset: u64,
    /// 1 is FIN.
    #[serde(default)]
    pub flags: u8,
    /// The right one if not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<u8>,
    /// Should be 0.
    #[serde(default)]
    pub reserved: u16,
    /// The payload.
    #[serde(default)]
    pub data: Data,
}

/// A binary message as it stands.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SendBytes {
    /// The connection.
    pub on: String,
    /// Header and payload.
    pub bytes: Data,
}

/// The first message, of those that no step has taken, with all the fields that are set here. Reported are the fields
/// of the message; those of a `frame` (`stream`, `offset`, `flags`, `length`); or, once no message can come any more,
/// those of the `close` (`code`, `reason`).
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Receive {
    /// The connection.
    pub on: String,
    /// Its kind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// The request it answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<u64>,
    /// Its type.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub message_type: Option<String>,
    /// The stream it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stream: Option<u32>,
}

/// The bytes of a stream, reported as standard output.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Collect {
    /// The connection.
    pub on: String,
    /// The stream.
    pub stream: u32,
    /// Until so many have come; up to its end if not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub length: Option<usize>,
}

/// Which connection.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct On {
    /// As given in its `as`.
    pub on: String,
}

fn once() -> u64 {
    1
}

fn yes() -> bool {
    true
}
