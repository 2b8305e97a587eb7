//! The bound on JSON integers: 2^53 - 1, what every JSON reader keeps exact.

#[cfg(test)]
mod tests;

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
                    let message = format!("integer {} at byte {at} is above 2^53 - 1", &json[at..end]);
                    return Err(MalformedText::new(None, message));
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
