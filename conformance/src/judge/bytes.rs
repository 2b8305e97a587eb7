//! Compares bytes and texts.

use regex::Regex;

use crate::scenario::expect::{Bytes, Length, Matches};

/// Longer ones are shown cut.
const SHOWN_BYTES: usize = 120;

pub(super) fn complaint(expected: &Bytes, reported: &[u8]) -> Option<String> {
    match expected {
        Bytes::Exactly(data) => match data.bytes() {
            Ok(bytes) => {
                (bytes != reported).then(|| format!("is {}, not {}", shown(reported), shown(&bytes)))
            }
            Err(error) => Some(format!("cannot be compared: {error}")),
        },
        Bytes::Length(Length { length }) => {
            (reported.len() != *length).then(|| format!("has {} bytes, not {length}", reported.len()))
        }
        Bytes::Matches(Matches { matches }) => {
            matching_complaint(matches, &String::from_utf8_lossy(reported))
        }
    }
}

pub(super) fn matching_complaint(pattern: &str, text: &str) -> Option<String> {
    match Regex::new(pattern) {
        Ok(regex) => {
            (!regex.is_match(text)).then(|| format!("{} does not match {pattern}", shown(text.as_bytes())))
        }
        Err(error) => Some(format!("cannot be matched: {error}")),
    }
}

fn shown(bytes: &[u8]) -> String {
    let head = String::from_utf8_lossy(&bytes[..bytes.len().min(SHOWN_BYTES)]);
    if bytes.len() <= SHOWN_BYTES {
        format!("{head:?}")
    } else {
        format!("{head:?}… ({} bytes)", bytes.len())
    }
}
