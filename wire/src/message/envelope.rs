//! The envelope: one JSON object per text message, decoded in two steps.

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::value::RawValue;

use super::{Event, Request, Response, Scope};
use crate::{
    error::{Code, Rejection},
    id::{RequestId, StreamId},
};

/// The largest integer a JSON number may carry here: 2^53 - 1, what every JSON reader keeps exact.
const MAX_INTEGER: u64 = (1 << 53) - 1;

/// A text message that could be read.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "fields are those of PROTOCOL.md")]
pub enum Envelope {
    /// `request`: `Err` holds the answer it must get where its type or body cannot be read.
    Request { id: RequestId, scope: Scope, request: Result<Request, Rejection> },
    /// `response`: `None` for a type this version does not know.
    Response { seq: u64, id: RequestId, response: Option<Response> },
    /// `event`: `None` for a type this version does not know.
    Event { seq: u64, scope: Scope, event: Option<Event> },
    /// `cancel`: best effort; the request still gets its one answer.
    Cancel { id: RequestId },
    /// `credit`: `limit` never falls.
    Credit { stream: StreamId, received: u64, limit: u64 },
    /// `reset`, from a sender: the stream ends here, incomplete.
    Reset { stream: StreamId, code: Code, message: String },
    /// `stop`, from a receiver: send no more.
    Stop { stream: StreamId, code: Code },
    /// `ack`: what a session that outlives its connection may forget.
    Ack { seq: u64 },
}

/// What [`decode`] made of a text message.
pub type Decoded = Result<Envelope, MalformedText>;

/// A text message that names no request to reject: the connection is closed with this reason.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct MalformedText {
    /// The field at fault, where there is one.
    pub field: Option<String>,
    /// What is wrong with it.
    pub message: String,
}

impl MalformedText {
    fn into_rejection(self) -> Rejection {
        match self.field {
            Some(field) => Rejection::invalid(field, self.message),
            None => Rejection::new(Code::INVALID_ARGUMENT, self.message),
        }
    }
}

#[derive(Deserialize)]
struct RawEnvelope<'a> {
    kind: Kind,
    #[serde(default)]
    id: Option<u64>,
    #[serde(default)]
    seq: Option<u64>,
    #[serde(default)]
    scope: Scope,
    #[serde(default, rename = "type", borrow)]
    name: Option<std::borrow::Cow<'a, str>>,
    #[serde(default, borrow)]
    body: Option<&'a RawValue>,
    #[serde(default)]
    stream: Option<u32>,
    #[serde(default)]
    received: Option<u64>,
    #[serde(default)]
    limit: Option<u64>,
    #[serde(default)]
    code: Option<String>,
    #[serde(default)]
    message: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    Request,
    Response,
    Event,
    Ack,
    Cancel,
    Credit,
    Reset,
    Stop,
}

/// Reads one text message.
pub fn decode(text: &str) -> Decoded {
    let raw: RawEnvelope<'_> = match parse(text) {
        Ok(raw) => raw,
        Err(malformed) => return reject_if_request(text, malformed),
    };
    let integers = check_integers(text);
    if raw.kind == Kind::Request {
        return decode_request(&raw, integers);
    }
    integers?;
    let body = raw.body.map_or("{}", RawValue::get);
    let stream = || required(raw.stream, "stream").map(StreamId);
    let code = || required(raw.code.clone(), "code").map(Code::from);
    Ok(match raw.kind {
        Kind::Request => unreachable!("returned above"),
        Kind::Response => Envelope::Response {
            seq: required(raw.seq, "seq")?,
            id: RequestId(required(raw.id, "id")?),
            response: Response::decode(&required(raw.name, "type")?, body)?,
        },
        Kind::Event => Envelope::Event {
            seq: required(raw.seq, "seq")?,
            scope: raw.scope,
            event: Event::decode(&required(raw.name, "type")?, body)?,
        },
        Kind::Ack => Envelope::Ack { seq: required(raw.seq, "seq")? },
        Kind::Cancel => Envelope::Cancel { id: RequestId(required(raw.id, "id")?) },
        Kind::Credit => Envelope::Credit {
            stream: stream()?,
            received: required(raw.received, "received")?,
            limit: required(raw.limit, "limit")?,
        },
        Kind::Reset => {
            Envelope::Reset { stream: stream()?, code: code()?, message: raw.message.unwrap_or_default() }
        }
        Kind::Stop => Envelope::Stop { stream: stream()?, code: code()? },
    })
}

/// An envelope that cannot be read whole may still name a request to reject.
fn reject_if_request(text: &str, malformed: MalformedText) -> Decoded {
    #[derive(Deserialize)]
    struct Named {
        kind: Kind,
        id: u64,
    }
    match serde_json::from_str(text) {
        Ok(Named { kind: Kind::Request, id }) => Ok(Envelope::Request {
            id: RequestId(id),
            scope: Scope::SESSION,
            request: Err(malformed.into_rejection()),
        }),
        _ => Err(malformed),
    }
}

/// A request whose id can be read is answered, never a reason to close.
fn decode_request(raw: &RawEnvelope<'_>, integers: Result<(), MalformedText>) -> Decoded {
    let id = RequestId(required(raw.id, "id")?);
    let decoded = integers.and_then(|()| {
        let name = required(raw.name.as_deref(), "type")?;
        Ok((name, Request::decode(name, raw.body.map_or("{}", RawValue::get))?))
    });
    let request = match decoded {
        Ok((_, Some(request))) => Ok(request),
        Ok((name, None)) => {
            Err(Rejection::new(Code::UNSUPPORTED, format!("this sidecar knows no request '{name}'")))
        }
        Err(malformed) => Err(malformed.into_rejection()),
    };
    Ok(Envelope::Request { id, scope: raw.scope, request })
}

/// Reads a message's body.
pub(super) fn decode_body<T: DeserializeOwned>(body: &str) -> Result<T, MalformedText> {
    parse(body)
}

/// Parses once; only a failure is parsed a second time, to learn which field it was.
fn parse<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, MalformedText> {
    serde_json::from_str(text).map_err(|error| {
        let mut deserializer = serde_json::Deserializer::from_str(text);
        let field = serde_path_to_error::deserialize::<_, T>(&mut deserializer)
            .err()
            .map(|error| error.path().to_string())
            .filter(|path| path != ".");
        match field {
            Some(field) => MalformedText { message: format!("{field}: {error}"), field: Some(field) },
            None => MalformedText { field: missing_field(&error), message: error.to_string() },
        }
    })
}

/// The field a "missing field `x`" of serde is about.
fn missing_field(error: &serde_json::Error) -> Option<String> {
    let text = error.to_string();
    let name = text.strip_prefix("missing field `")?.split('`').next()?;
    Some(name.to_owned())
}

fn required<T>(value: Option<T>, field: &str) -> Result<T, MalformedText> {
    value.ok_or_else(|| MalformedText {
        field: Some(field.to_owned()),
        message: format!("missing field `{field}`"),
    })
}

/// Every JSON integer stays at or below [`MAX_INTEGER`]: looks at digit runs outside of strings.
fn check_integers(json: &str) -> Result<(), MalformedText> {
    let bytes = json.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'"' => at = end_of_string(bytes, at + 1),
            b'0'..=b'9' => {
                let end =
                    bytes[at..].iter().position(|b| !b.is_ascii_digit()).map_or(bytes.len(), |n| at + n);
                let integer = json[at..end].parse::<u64>();
                if end - at >= 16 && !matches!(integer, Ok(value) if value <= MAX_INTEGER) {
                    let message = format!("integer {} at byte {at} is above 2^53 - 1", &json[at..end]);
                    return Err(MalformedText { field: None, message });
                }
                at = end;
            }
            _ => at += 1,
        }
    }
    Ok(())
}

/// Just behind the quote that ends the string begun before `at`.
fn end_of_string(bytes: &[u8], mut at: usize) -> usize {
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    at
}

/// The serialised side. `flatten` is only ever written, never read.
#[derive(Serialize)]
struct Outgoing<'a, T> {
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

fn encode<T: Serialize>(message: &T) -> String {
    serde_json::to_string(message).expect("messages have string keys and no failing serialisers")
}

/// Writes a request.
pub fn encode_request(id: RequestId, scope: Scope, message: &Request) -> String {
    let scope = (scope != Scope::SESSION).then_some(scope);
    encode(&Outgoing { kind: "request", seq: None, id: Some(id), scope, message })
}

/// Writes a response.
pub fn encode_response(seq: u64, id: RequestId, message: &Response) -> String {
    encode(&Outgoing { kind: "response", seq: Some(seq), id: Some(id), scope: None, message })
}

/// Writes an event.
pub fn encode_event(seq: u64, scope: Scope, message: &Event) -> String {
    let scope = (scope != Scope::SESSION).then_some(scope);
    encode(&Outgoing { kind: "event", seq: Some(seq), id: None, scope, message })
}

/// Writes a `cancel`.
pub fn encode_cancel(id: RequestId) -> String {
    encode(&serde_json::json!({ "kind": "cancel", "id": id }))
}

/// Writes a `credit`.
pub fn encode_credit(stream: StreamId, received: u64, limit: u64) -> String {
    encode(&serde_json::json!({ "kind": "credit", "stream": stream, "received": received, "limit": limit }))
}

/// Writes a `reset`.
pub fn encode_reset(stream: StreamId, code: &Code, message: &str) -> String {
    encode(&serde_json::json!({ "kind": "reset", "stream": stream, "code": code, "message": message }))
}

/// Writes a `stop`.
pub fn encode_stop(stream: StreamId, code: &Code) -> String {
    encode(&serde_json::json!({ "kind": "stop", "stream": stream, "code": code }))
}
