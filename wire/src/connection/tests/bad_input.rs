//! What a peer that breaks the rules is answered: the rows of the "Bad input" table that the core decides.

use bytes::Bytes;

use super::{
    End, Message, Pair,
    pair::{data, forged, hello, list_vms_as},
};
use crate::{
    connection::{Received, Violation},
    error::{Code, Rejection},
    id::{RequestId, StreamId},
    message::{Envelope, Response, Scope, decode, encode_cancel, encode_credit, encode_request},
    session::Limits,
};

fn small() -> Limits {
    Limits { max_text_bytes: 400, max_binary_bytes: 100, ..Limits::default() }
}

/// The rejection the sidecar sends next, and the id it answers.
fn rejected(pair: &mut Pair) -> (u64, Rejection) {
    let text = pair.server.next_control().expect("an answer is due");
    match decode(&text).unwrap() {
        Envelope::Response { id, response: Some(Response::Rejected(rejection)), .. } => (id.0, rejection),
        other => panic!("{other:?} is no rejection"),
    }
}

fn close(close_code: u16, reason: &str) -> Result<Received, Violation> {
    Err(Violation { close_code, reason: reason.into() })
}

#[test]
fn a_large_text_message_is_answered_alone_and_the_session_lives_on() {
    let mut pair = Pair::with(small());
    let mut text = list_vms_as(RequestId(2));
    text.push_str(&" ".repeat(800 - text.len()));
    assert_eq!(pair.server.receive_text(&text), Ok(Received::Nothing));
    let (id, rejection) = rejected(&mut pair);
    assert_eq!((id, rejection.code), (2, Code::TOO_LARGE));
    assert_eq!(rejection.details.limit_name.as_deref(), Some("max_text_bytes"));
    assert_eq!((rejection.details.limit, rejection.details.observed), (Some(400), Some(800)));
    assert!(matches!(pair.server.receive_text(&list_vms_as(RequestId(3))), Ok(Received::Request { .. })));
}

#[test]
fn a_text_message_over_twice_the_limit_closes_the_connection() {
    let mut pair = Pair::with(small());
    let text = " ".repeat(801);
    assert_eq!(pair.server.receive_text(&text), close(1009, "text message of 801 bytes, limit is 400"));
}

#[test]
fn a_large_binary_message_resets_its_stream_alone() {
    let mut pair = Pair::with(small());
    let (large, other) = (pair.open(End::Client), pair.open(End::Client));
    pair.to_server.push_back(forged(large, 0, &[7; 184], false));
    pair.to_server.push_back(forged(large, 184, &[7; 10], false));
    pair.to_server.push_back(forged(other, 0, b"lives on", false));
    let message = "binary message of 200 bytes, limit is 100".to_owned();
    let reset = Received::Reset { stream: large, code: Code::TOO_LARGE, message };
    assert_eq!(pair.deliver_all(End::Server), [reset.clone(), data(other, 0, b"lives on", false)]);
    let (client, _) = pair.exchange();
    assert_eq!(client, [reset]);
    assert!(!pair.client.is_sending(large));
}

#[test]
fn a_large_binary_message_for_a_closed_stream_is_discarded() {
    let mut pair = Pair::with(small());
    let stream = pair.open(End::Client);
    pair.server.close_stream(stream);
    pair.to_server.push_back(forged(stream, 0, &[7; 184], false));
    assert_eq!(pair.deliver(End::Server), Some(Ok(Received::Nothing)));
    assert_eq!(pair.server.next_control(), None);
}

#[test]
fn a_binary_message_over_twice_the_limit_closes_the_connection() {
    let mut pair = Pair::with(small());
    let stream = pair.open(End::Client);
    pair.to_server.push_back(forged(stream, 0, &[7; 185], false));
    assert_eq!(pair.deliver(End::Server), Some(close(1009, "binary message of 201 bytes, limit is 100")));
}

#[test]
fn the_first_message_must_be_hello() {
    let mut pair = Pair::silent(Limits::default());
    for text in [list_vms_as(RequestId(1)), encode_credit(StreamId(1), 0, 1), encode_cancel(RequestId(1))] {
        assert_eq!(pair.server.receive_text(&text), close(1008, "the first message must be hello"), "{text}");
    }
    let Message::Binary(bytes) = forged(StreamId(1), 0, b"x", false) else { unreachable!() };
    assert_eq!(pair.server.receive_binary(bytes), close(1008, "the first message must be hello"));
    assert_eq!(pair.server.next_control(), None, "nothing is answered before hello");
}

#[test]
fn a_hello_that_cannot_be_read_is_told_why_in_the_close_reason() {
    let mut pair = Pair::silent(Limits::default());
    let text = r#"{"kind":"request","id":1,"type":"hello","body":{"protocol_min":1,"protocol_max":1}}"#;
    let reason = "the first message must be hello: missing field `client`";
    assert_eq!(pair.server.receive_text(text), close(1008, reason));
}

#[test]
fn what_cannot_be_read_is_no_hello_either() {
    let mut pair = Pair::silent(Limits::default());
    let response = r#"{"kind":"response","seq":1,"id":1,"type":"vms","body":{"vms":[]}}"#;
    for text in ["garbage", "[]", r#"{"kind":"wish"}"#, r#"{"kind":"request","type":"hello"}"#, response] {
        let violation = pair.server.receive_text(text).unwrap_err();
        assert_eq!(violation.close_code, 1008, "{text}: {violation}");
        assert!(violation.reason.starts_with("the first message must be hello"), "{text}: {violation}");
    }
    let reason = "the first message must be hello";
    assert_eq!(pair.server.receive_binary(b"short".as_slice().into()), close(1008, reason));
}

#[test]
fn nothing_is_admitted_until_hello_is_welcomed() {
    let mut pair = Pair::silent(Limits::default());
    let hello = |id| encode_request(RequestId(id), Scope::SESSION, &hello());
    assert!(matches!(pair.server.receive_text(&hello(1)), Ok(Received::Request { .. })));
    for text in [hello(2), list_vms_as(RequestId(2)), encode_cancel(RequestId(1))] {
        assert_eq!(pair.server.receive_text(&text), close(1008, "hello is not answered yet"), "{text}");
    }
}

#[test]
fn a_rejected_hello_opens_nothing_and_may_be_followed_by_another() {
    let mut pair = Pair::silent(Limits::default());
    let hello = |id| encode_request(RequestId(id), Scope::SESSION, &hello());
    pair.server.receive_text(&hello(1)).unwrap();
    let rejection = Rejection::new(Code::VERSION_MISMATCH, "no common version");
    pair.server.respond(RequestId(1), &Response::Rejected(rejection));
    let reason = "the first message must be hello";
    assert_eq!(pair.server.receive_text(&list_vms_as(RequestId(2))), close(1008, reason));

    assert!(matches!(pair.server.receive_text(&hello(3)), Ok(Received::Request { .. })));
    pair.server.respond(RequestId(3), &super::pair::welcome(Limits::default()));
    assert!(matches!(pair.server.receive_text(&list_vms_as(RequestId(4))), Ok(Received::Request { .. })));
}

#[test]
fn a_second_hello_is_refused_and_the_session_lives_on() {
    let mut pair = Pair::new();
    let text = encode_request(RequestId(2), Scope::SESSION, &hello());
    assert_eq!(pair.server.receive_text(&text), Ok(Received::Nothing));
    assert_eq!(rejected(&mut pair).1.code, Code::FAILED_PRECONDITION);
    assert!(matches!(pair.server.receive_text(&list_vms_as(RequestId(3))), Ok(Received::Request { .. })));
}

#[test]
fn too_many_requests_are_refused_until_one_is_answered() {
    let mut pair = Pair::with(Limits { max_requests: 2, ..Limits::default() });
    for id in [2, 3] {
        assert!(matches!(
            pair.server.receive_text(&list_vms_as(RequestId(id))),
            Ok(Received::Request { .. })
        ));
    }
    assert_eq!(pair.server.receive_text(&list_vms_as(RequestId(4))), Ok(Received::Nothing));
    let (id, rejection) = rejected(&mut pair);
    assert_eq!((id, rejection.code), (4, Code::RESOURCE_EXHAUSTED));
    assert_eq!((rejection.details.limit, rejection.details.observed), (Some(2), Some(3)));
    assert_eq!(rejection.details.retryable, Some(true));

    pair.server.respond(RequestId(2), &Response::Rejected(Rejection::vm_not_found()));
    assert!(matches!(pair.server.receive_text(&list_vms_as(RequestId(5))), Ok(Received::Request { .. })));
}

#[test]
fn a_hole_closes_the_connection() {
    let mut pair = Pair::new();
    let stream = pair.open(End::Client);
    pair.to_server.push_back(forged(stream, 0, b"abc", false));
    pair.to_server.push_back(forged(stream, 4, b"e", false));
    pair.deliver(End::Server);
    assert_eq!(pair.deliver(End::Server), Some(close(1002, "stream 1 has a hole: 4 follows 3")));
}

#[test]
fn data_for_a_stream_never_opened_closes_the_connection() {
    for end in [End::Client, End::Server] {
        let mut pair = Pair::new();
        pair.open(End::Client);
        pair.wire_to(end).push_back(forged(StreamId(2), 0, b"x", false));
        assert_eq!(pair.deliver(end), Some(close(1002, "stream 2 was never opened")));
    }
}

#[test]
fn a_header_that_cannot_be_read_closes_the_connection() {
    let mut pair = Pair::new();
    pair.open(End::Client);
    let good = [1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let broken = |at: usize, byte: u8| {
        let mut bytes = good;
        bytes[at] = byte;
        Bytes::copy_from_slice(&bytes)
    };
    assert_eq!(pair.server.receive_binary(Bytes::copy_from_slice(&good)), Ok(Received::Nothing));
    for (message, reason) in [
        (Bytes::new(), "binary message of 0 bytes is shorter than its 16 byte header"),
        (
            Bytes::copy_from_slice(&good[..15]),
            "binary message of 15 bytes is shorter than its 16 byte header",
        ),
        (broken(0, 2), "frame version 2 is not 1"),
        (broken(1, 2), "frame flags 0x02 are not known"),
        (broken(2, 1), "reserved bytes are not zero"),
        (broken(3, 1), "reserved bytes are not zero"),
    ] {
        assert_eq!(pair.server.receive_binary(message), close(1002, reason));
    }
}

#[test]
fn each_end_sends_only_its_own_kinds() {
    let mut pair = Pair::new();
    pair.client.request(Scope::SESSION, &super::pair::list_vms()).unwrap();
    pair.exchange();
    let reason = "a client sends no response and no event";
    for text in [
        r#"{"kind":"response","seq":9,"id":2,"type":"vms","body":{}}"#,
        r#"{"kind":"event","seq":9,"type":"output_drained","body":{"process":1,"end":{}}}"#,
    ] {
        assert_eq!(pair.server.receive_text(text), close(1002, reason));
    }
    // The forged answer took nothing away from the request, which still gets its own.
    pair.server.respond(RequestId(2), &Response::Vms(crate::vm::Vms::default()));
    assert!(pair.server.next_control().is_some());

    let reason = "a sidecar sends no request and no cancel";
    for text in [list_vms_as(RequestId(9)), encode_cancel(RequestId(2))] {
        assert_eq!(pair.client.receive_text(&text), close(1002, reason));
    }
}

#[test]
fn a_close_reason_fits_its_frame_however_much_the_peer_sent() {
    let mut pair = Pair::silent(Limits::default());
    let long = "ü".repeat(10_000);
    for text in [
        format!(r#"{{"kind":"{long}"}}"#),
        format!(r#"{{"kind":"request","id":1,"type":"{long}"}}"#),
        format!(r#"{{"kind":"cancel","id":"{long}"}}"#),
    ] {
        let violation = pair.server.receive_text(&text).unwrap_err();
        assert!(violation.reason.len() <= 123, "{} bytes", violation.reason.len());
        assert!(violation.reason.ends_with('…'));
    }
}
