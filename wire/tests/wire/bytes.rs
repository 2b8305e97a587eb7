//! Bytes that go out come back: frame headers and texts that need not be UTF-8.

use agentvm_wire::{
    bytes64::{Bytes64, join, join_all, split, split_all},
    id::StreamId,
    stdio::Header,
};
use proptest::{collection::vec, prelude::*};

#[test]
fn text_travels_as_itself_alone() {
    assert_eq!(split("größe".into()), ("größe".into(), None));
    assert_eq!(split_all(vec![b"a".to_vec(), Vec::new()]), (vec!["a".into(), String::new()], None));
}

#[test]
fn other_bytes_travel_beside_a_text_for_people() {
    assert_eq!(split(b"caf\xe9".into()), ("caf\u{fffd}".into(), Some(Bytes64(b"caf\xe9".into()))));
    let (texts, bytes) = split_all(vec![b"a".to_vec(), b"\xff".to_vec()]);
    assert_eq!(texts, ["a", "\u{fffd}"]);
    assert_eq!(bytes, Some(vec![Bytes64(b"a".into()), Bytes64(b"\xff".into())]));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_header_comes_back(stream: u32, offset: u64, fin: bool, payload in vec(any::<u8>(), 0..8)) {
        let header = Header { stream: StreamId(stream), offset, fin };
        let message = [&header.encode()[..], &payload].concat();
        prop_assert_eq!(Header::decode(&message), Ok(header));
    }

    #[test]
    fn every_header_that_is_read_is_the_one_that_would_be_written(bytes in vec(any::<u8>(), 16)) {
        if let Ok(header) = Header::decode(&bytes) {
            prop_assert_eq!(&header.encode()[..], &bytes[..]);
        }
    }

    #[test]
    fn every_byte_string_comes_back(bytes in vec(any::<u8>(), 0..40)) {
        let (text, b64) = split(bytes.clone());
        let b64 = b64.map(|b64| serde_json::from_str(&serde_json::to_string(&b64).unwrap()).unwrap());
        prop_assert_eq!(join(text, b64), bytes);
    }

    #[test]
    fn every_list_of_byte_strings_comes_back(list in vec(vec(any::<u8>(), 0..4), 0..6)) {
        let (texts, b64) = split_all(list.clone());
        prop_assert_eq!(texts.len(), list.len());
        prop_assert_eq!(join_all(texts, b64), list);
    }
}
