//! How JSON is laid out.

use super::*;

#[test]
fn fields_keep_their_order_and_strings_their_text() {
    assert_eq!(
        pretty(r#"{"b":[1,{"a":"x,\"{:"}],"a":{},"c":[]}"#),
        "{\n  \"b\": [\n    1,\n    {\n      \"a\": \"x,\\\"{:\"\n    }\n  ],\n  \"a\": {},\n  \"c\": []\n}\n"
    );
}
