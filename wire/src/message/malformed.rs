//! Text that cannot be read, and which field is to blame.

use serde::Deserialize;

use crate::{
    error::{Code, Rejection},
    text::clip,
};

/// Longest message about malformed text: it may quote what the peer sent, which may be megabytes.
const MAX_MESSAGE_BYTES: usize = 400;

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
    pub(super) fn new(field: Option<String>, message: impl AsRef<str>) -> Self {
        let field = field.map(|field| clip(&field, MAX_MESSAGE_BYTES));
        Self { field, message: clip(message.as_ref(), MAX_MESSAGE_BYTES) }
    }

    pub(super) fn missing(field: &str) -> Self {
        Self::new(Some(field.to_owned()), format!("missing field `{field}`"))
    }

    /// The answer to a request that is malformed in this way.
    pub(super) fn into_rejection(self) -> Rejection {
        match self.field {
            Some(field) => Rejection::invalid(field, self.message),
            None => Rejection::new(Code::INVALID_ARGUMENT, self.message),
        }
    }
}

/// Reads the body of a message.
pub(super) fn parse_body<'a, T: Deserialize<'a>>(body: &'a str) -> Result<T, MalformedText> {
    if !is_object(body) {
        return Err(MalformedText::new(Some("body".into()), "body is not an object"));
    }
    parse(body)
}

/// Whether JSON text can only be an object: serde would also read a list, taking its elements for the fields in order.
pub(super) fn is_object(json: &str) -> bool {
    json.trim_start().starts_with('{')
}

/// Parses once; only a failure is parsed a second time, to learn which field it was.
pub(super) fn parse<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, MalformedText> {
    serde_json::from_str(text).map_err(|error| {
        let mut deserializer = serde_json::Deserializer::from_str(text);
        let path = serde_path_to_error::deserialize::<_, T>(&mut deserializer)
            .err()
            .map(|error| error.path().to_string())
            .filter(|path| path != ".");
        blame(path, &error)
    })
}

/// Where a value of the wrong kind stands is told by the path; of a missing field it ends one level too early.
fn blame(path: Option<String>, error: &serde_json::Error) -> MalformedText {
    let text = error.to_string();
    if !error.is_data() {
        return MalformedText::new(path, text);
    }
    // The position is one in the body, not in the message: the field says more.
    let what = text.rsplit_once(" at line ").map_or(&*text, |(what, _)| what);
    match (path, missing_field(what)) {
        (Some(path), Some(name)) => MalformedText::missing(&format!("{path}.{name}")),
        (None, Some(name)) => MalformedText::missing(name),
        (Some(path), None) => MalformedText::new(Some(path.clone()), format!("{path}: {what}")),
        (None, None) => MalformedText::new(None, what),
    }
}

/// The field a "missing field `x`" of serde is about.
fn missing_field(text: &str) -> Option<&str> {
    text.strip_prefix("missing field `")?.split('`').next()
}
