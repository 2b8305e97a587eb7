//! The bound on JSON integers: 2^53 - 1, what every JSON reader keeps exact.

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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_largest_exact_integer_passes_and_the_next_does_not() {
        assert!(check_integers(r#"{"a":9007199254740991}"#).is_ok());
        let error = check_integers(r#"{"a":9007199254740992}"#).unwrap_err();
        assert_eq!(error.message, "integer 9007199254740992 at byte 5 is above 2^53 - 1");
    }

    #[test]
    fn negative_integers_are_bounded_by_the_same_magnitude() {
        assert!(check_integers("-9007199254740991").is_ok());
        assert!(check_integers("-9007199254740992").is_err());
    }

    #[test]
    fn integers_too_long_for_any_type_are_refused() {
        assert!(check_integers(&"9".repeat(400)).is_err());
    }

    #[test]
    fn digits_in_strings_are_no_integers() {
        assert!(check_integers(r#"{"ino\"9999999999999999":"9999999999999999\\"}"#).is_ok());
    }

    #[test]
    fn digits_of_a_fraction_or_an_exponent_are_no_integers() {
        assert!(check_integers("[0.9999999999999999, 9999999999999999.5, 9999999999999999e-3]").is_ok());
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn an_integer_anywhere_in_a_document_is_found(value: u64, text: String, before: i32) {
            let json = serde_json::json!([text, before, { "deep": [1.5, value] }]).to_string();
            prop_assert_eq!(check_integers(&json).is_ok(), value <= MAX_INTEGER);
        }
    }
}
