//! The bound on JSON integers: 2^53 - 1, what every JSON reader keeps exact.

#[cfg(test)]
mod tests;

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use super::MalformedText;

/// The largest integer a JSON number may carry here.
pub const MAX_INTEGER: u64 = (1 << 53) - 1;

/// Checks every integer of a valid JSON text, whether its field is known or not, by magnitude.
pub(super) fn check_integers(json: &str) -> Result<(), MalformedText> {
    let bytes = json.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'"' => at = end_of_string(bytes, at + 1),
            b'0'..=b'9' => {
                let end = end_of_number(bytes, at);
                if !is_exact(&json[at..end]) {
                    return Err(blame(json, &json[at..end]));
                }
                at = end;
            }
            _ => at += 1,
        }
    }
    Ok(())
}

/// A fraction or an exponent makes it no integer; fields that want one refuse it by type.
fn is_exact(number: &str) -> bool {
    let is_integer = number.bytes().all(|byte| byte.is_ascii_digit());
    !is_integer || number.parse().is_ok_and(|value: u64| value <= MAX_INTEGER)
}

fn end_of_number(bytes: &[u8], at: usize) -> usize {
    let of_number = |byte: &u8| matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-');
    bytes[at..].iter().position(|byte| !of_number(byte)).map_or(bytes.len(), |len| at + len)
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

/// Names the field that holds an integer which is not exact. Only then is the text read a second time.
fn blame(json: &str, integer: &str) -> MalformedText {
    let mut deserializer = serde_json::Deserializer::from_str(json);
    let path = serde_path_to_error::deserialize::<_, Exact>(&mut deserializer).err();
    // Fields are named as they are in the body, except those of the envelope.
    let field = path.map(|error| error.path().to_string()).filter(|path| path != ".");
    let field = field.map(|path| path.strip_prefix("body.").map_or(path.clone(), str::to_owned));
    let name = field.as_deref().unwrap_or("an integer");
    let message = format!("{name}: {integer} is above 2^53 - 1");
    MalformedText::new(field, message)
}

/// Any JSON whose integers are exact.
struct Exact;

impl<'de> Deserialize<'de> for Exact {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Self)
    }
}

impl<'de> Visitor<'de> for Exact {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Self, E> {
        if value <= MAX_INTEGER { Ok(self) } else { Err(E::custom("too large")) }
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Self, E> {
        self.visit_u64(value.unsigned_abs())
    }

    /// An integer that no type of Rust holds is read as one of these too.
    fn visit_f64<E: Error>(self, value: f64) -> Result<Self, E> {
        if value.abs() < 2f64.powi(63) { Ok(self) } else { Err(E::custom("too large")) }
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_str<E>(self, _: &str) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_unit<E>(self) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Self, A::Error> {
        while sequence.next_element::<Self>()?.is_some() {}
        Ok(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self, A::Error> {
        while map.next_entry::<String, Self>()?.is_some() {}
        Ok(self)
    }
}
