//! Writing text messages: compact JSON, `kind` first.

use serde::Serialize;

use super::{Event, Request, Response, Scope};
use crate::{
    error::Code,
    id::{RequestId, StreamId},
};

/// A message with a type and a body. `flatten` is only ever written, never read.
#[derive(Serialize)]
struct Typed<'a, T> {
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    seq: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<RequestId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    scope: Option<Scope>,
    #[serde(flatten)]
    message: &'a T,
}

/// A message that consists of its kind and plain fields.
#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum Plain<'a> {
    Cancel { id: RequestId },
    Credit { stream: StreamId, received: u64, limit: u64 },
    Reset { stream: StreamId, code: &'a Code, message: &'a str },
    Stop { stream: StreamId, code: &'a Code },
}

fn encode(message: &impl Serialize) -> String {
    serde_json::to_string(message).expect("messages have string keys and no failing serialisers")
}

/// Writes a request.
pub fn encode_request(id: RequestId, scope: Scope, message: &Request) -> String {
    encode(&Typed { kind: "request", seq: None, id: Some(id), scope: unless_session(scope), message })
}

/// Writes a response.
pub fn encode_response(seq: u64, id: RequestId, message: &Response) -> String {
    encode(&Typed { kind: "response", seq: Some(seq), id: Some(id), scope: None, message })
}

/// Writes an event.
pub fn encode_event(seq: u64, scope: Scope, message: &Event) -> String {
    encode(&Typed { kind: "event", seq: Some(seq), id: None, scope: unless_session(scope), message })
}

/// Writes a `cancel`.
pub fn encode_cancel(id: RequestId) -> String {
    encode(&Plain::Cancel { id })
}

/// Writes a `credit`.
pub fn encode_credit(stream: StreamId, received: u64, limit: u64) -> String {
    encode(&Plain::Credit { stream, received, limit })
}

/// Writes a `reset`.
pub fn encode_reset(stream: StreamId, code: &Code, message: &str) -> String {
    encode(&Plain::Reset { stream, code, message })
}

/// Writes a `stop`.
pub fn encode_stop(stream: StreamId, code: &Code) -> String {
    encode(&Plain::Stop { stream, code })
}

/// The session is what an absent scope means.
fn unless_session(scope: Scope) -> Option<Scope> {
    (scope != Scope::SESSION).then_some(scope)
}
