//! The envelope: one JSON object per text message, decoded in two steps, the body only once its type is known.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::{
    Event, MAX_INTEGER, MalformedText, Request, Response, Scope,
    integers::check_integers,
    malformed::{is_object, parse},
};
use crate::{
    error::{Code, Rejection},
    id::{RequestId, StreamId},
    text::clip,
};

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
    name: Option<Cow<'a, str>>,
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
    if !is_object(text) {
        return Err(MalformedText::new(None, "a text message is a JSON object"));
    }
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
        Ok(Named { kind: Kind::Request, id: id @ ..=MAX_INTEGER }) => Ok(Envelope::Request {
            id: RequestId(id),
            scope: Scope::SESSION,
            request: Err(malformed.into_rejection()),
        }),
        _ => Err(malformed),
    }
}

/// A request whose id can be read is answered, never a reason to close.
fn decode_request(raw: &RawEnvelope<'_>, integers: Result<(), MalformedText>) -> Decoded {
    let id = required(raw.id, "id")?;
    if id > MAX_INTEGER {
        return Err(integers.expect_err("the id itself is too large"));
    }
    let decoded = integers.and_then(|()| {
        let name = required(raw.name.as_deref(), "type")?;
        Ok((name, Request::decode(name, raw.body.map_or("{}", RawValue::get))?))
    });
    let request = match decoded {
        Ok((_, Some(request))) => Ok(request),
        Ok((name, None)) => Err(unknown_request(name)),
        Err(malformed) => Err(malformed.into_rejection()),
    };
    Ok(Envelope::Request { id: RequestId(id), scope: raw.scope, request })
}

fn unknown_request(name: &str) -> Rejection {
    Rejection::new(
        Code::UNSUPPORTED,
        format!("this sidecar knows no request '{}'", clip(name, MAX_NAME_BYTES)),
    )
}

/// Longest unknown name repeated to whoever sent it.
const MAX_NAME_BYTES: usize = 64;

fn required<T>(value: Option<T>, field: &str) -> Result<T, MalformedText> {
    value.ok_or_else(|| MalformedText::missing(field))
}
