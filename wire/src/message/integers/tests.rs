//! Which integers pass.

use proptest::prelude::*;

use super::*;

#[test]
fn the_largest_exact_integer_passes_and_the_next_does_not() {
    assert!(check_integers(r#"{"a":9007199254740991}"#).is_ok());
    let error = check_integers(r#"{"a":9007199254740992}"#).unwrap_err();
    assert_eq!(error.message, "a: 9007199254740992 is above 2^53 - 1");
}

#[test]
fn the_field_of_a_refused_integer_is_named_however_deep_and_large_it_is() {
    for large in ["9007199254740992", "-9007199254740992", "18446744073709551616", &"9".repeat(300)] {
        let json = format!(r#"{{"id":7,"body":{{"a":1.5,"b":null,"c":[true,{{"d":{large}}}]}}}}"#);
        let error = check_integers(&json).unwrap_err();
        assert_eq!(error.field.as_deref(), Some("c[1].d"), "{large}");
    }
    let error = check_integers(r#"{"seq":9007199254740992,"body":{}}"#).unwrap_err();
    assert_eq!(error.field.as_deref(), Some("seq"));
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
