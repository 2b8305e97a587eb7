//! Bytes that need not be UTF-8: a text field `x`, and `x_b64` beside it only when `x` had to be lossy.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

/// Bytes as standard base64 with padding.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Bytes64(pub Vec<u8>);

impl Serialize for Bytes64 {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for Bytes64 {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        STANDARD.decode(&*text).map(Self).map_err(D::Error::custom)
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for Bytes64 {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Bytes64".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "contentEncoding": "base64" })
    }
}

/// Splits bytes into the pair `(x, x_b64)`.
pub fn split(bytes: Vec<u8>) -> (String, Option<Bytes64>) {
    match String::from_utf8(bytes) {
        Ok(text) => (text, None),
        Err(error) => {
            (String::from_utf8_lossy(error.as_bytes()).into_owned(), Some(Bytes64(error.into_bytes())))
        }
    }
}

/// Splits a list of byte strings into `(xs, xs_b64)`: the second is there if any element is not UTF-8.
pub fn split_all(list: Vec<Vec<u8>>) -> (Vec<String>, Option<Vec<Bytes64>>) {
    if list.iter().all(|bytes| std::str::from_utf8(bytes).is_ok()) {
        (list.into_iter().map(|bytes| split(bytes).0).collect(), None)
    } else {
        let texts = list.iter().map(|bytes| String::from_utf8_lossy(bytes).into_owned()).collect();
        (texts, Some(list.into_iter().map(Bytes64).collect()))
    }
}

/// The bytes behind the pair `(x, x_b64)`, where they lie.
pub fn view<'a>(text: &'a str, b64: Option<&'a Bytes64>) -> &'a [u8] {
    b64.map_or(text.as_bytes(), |bytes| &bytes.0)
}

/// The byte strings behind the pair `(xs, xs_b64)`, where they lie.
pub fn view_all<'a>(texts: &'a [String], b64: Option<&'a [Bytes64]>) -> impl Iterator<Item = &'a [u8]> {
    let texts = texts.iter().take(if b64.is_some() { 0 } else { texts.len() });
    b64.unwrap_or_default().iter().map(|bytes| &*bytes.0).chain(texts.map(String::as_bytes))
}

/// The bytes behind the pair `(x, x_b64)`.
pub fn join(text: String, b64: Option<Bytes64>) -> Vec<u8> {
    b64.map_or_else(|| text.into_bytes(), |bytes| bytes.0)
}

/// The byte strings behind the pair `(xs, xs_b64)`.
pub fn join_all(texts: Vec<String>, b64: Option<Vec<Bytes64>>) -> Vec<Vec<u8>> {
    b64.map_or_else(
        || texts.into_iter().map(String::into_bytes).collect(),
        |list| list.into_iter().map(|bytes| bytes.0).collect(),
    )
}
