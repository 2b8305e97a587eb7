//! How streams end, and what becomes of bytes that come late, twice, or not at all.

use super::{
    End, Message, Pair,
    pair::{data, forged, list_vms},
};
use crate::{
    connection::Received,
    error::{Code, Rejection},
    id::StreamId,
    message::{Response, Scope, encode_reset, encode_stop},
};

#[test]
fn bytes_arrive_in_both_directions_with_their_offsets() {
    let mut pair = Pair::new();
    let (stdin, stdout) = (pair.open(End::Client), pair.open(End::Server));
    pair.write(End::Client, stdin, b"ask");
    pair.write(End::Client, stdin, b"ing");
    pair.write(End::Server, stdout, b"answer");
    assert_eq!(pair.deliver_all(End::Server), [data(stdin, 0, b"ask", false), data(stdin, 3, b"ing", false)]);
    assert_eq!(pair.deliver_all(End::Client), [data(stdout, 0, b"answer", false)]);
}

#[test]
fn fin_needs_no_credit() {
    let mut pair = Pair::with_window(8);
    let stream = pair.open(End::Server);
    assert_eq!(pair.write(End::Server, stream, b"12345678"), 8);
    assert_eq!(pair.server.next_turn(), None);
    pair.finish(End::Server, stream);
    assert_eq!(
        pair.deliver_all(End::Client),
        [data(stream, 0, b"12345678", false), data(stream, 8, b"", true)]
    );
    assert!(!pair.server.is_sending(stream));
}

#[test]
fn fin_may_ride_on_the_last_bytes() {
    let mut pair = Pair::new();
    let stream = pair.open(End::Server);
    pair.server.ready(stream);
    let turn = pair.server.next_turn().unwrap();
    let header = pair.server.frame(turn.stream, 3, true, false).unwrap();
    pair.to_client.push_back(super::pair::frame(header, b"end"));
    assert_eq!(pair.deliver_all(End::Client), [data(stream, 0, b"end", true)]);
    assert_eq!(pair.server.next_turn(), None);
}

#[test]
fn an_empty_message_without_fin_means_nothing() {
    let mut pair = Pair::new();
    let stream = pair.open(End::Client);
    pair.to_server.push_back(forged(stream, 0, b"", false));
    assert_eq!(pair.deliver(End::Server).unwrap(), Ok(Received::Nothing));
    pair.write(End::Client, stream, b"x");
    assert_eq!(pair.deliver_all(End::Server), [data(stream, 0, b"x", false)]);
}

#[test]
fn data_behind_fin_is_discarded() {
    let mut pair = Pair::new();
    let stream = pair.open(End::Client);
    pair.finish(End::Client, stream);
    pair.to_server.push_back(forged(stream, 0, b"late", false));
    assert_eq!(pair.deliver_all(End::Server), [data(stream, 0, b"", true)]);
}

#[test]
fn a_reset_ends_the_stream_incomplete_and_is_told_once() {
    let mut pair = Pair::new();
    let stream = pair.open(End::Server);
    pair.write(End::Server, stream, b"half");
    pair.server.reset(stream, &Code::EIO, "the pipe broke");
    pair.server.reset(stream, &Code::EIO, "again");
    pair.send_control(End::Server);
    assert_eq!(
        pair.deliver_all(End::Client),
        [
            data(stream, 0, b"half", false),
            Received::Reset { stream, code: Code::EIO, message: "the pipe broke".into() }
        ]
    );
    assert_eq!(pair.write(End::Server, stream, b"more"), 0);
}

#[test]
fn a_stop_ends_sending_and_bytes_on_their_way_are_discarded() {
    let mut pair = Pair::new();
    let stream = pair.open(End::Client);
    pair.client.ready(stream);
    pair.write(End::Client, stream, b"on its way");
    pair.server.stop(stream, &Code::EPIPE);
    pair.server.stop(stream, &Code::EPIPE);
    let (client, server) = pair.exchange();
    assert_eq!(client, [Received::Stopped { stream, code: Code::EPIPE }]);
    assert_eq!(server, []);
    assert!(!pair.client.is_sending(stream));
}

#[test]
fn a_frame_for_a_stream_that_was_stopped_meanwhile_is_dropped() {
    let mut pair = Pair::new();
    let stream = pair.open(End::Client);
    pair.client.ready(stream);
    let turn = pair.client.next_turn().unwrap();
    pair.server.stop(stream, &Code::EPIPE);
    pair.exchange();
    assert_eq!(pair.client.frame(turn.stream, 5, false, true), None);
    assert_eq!(pair.client.next_turn(), None);
}

#[test]
fn a_stopped_or_finished_stream_asks_for_no_more_credit() {
    let mut pair = Pair::with_window(8);
    let (stopped, finished) = (pair.open(End::Server), pair.open(End::Server));
    for stream in [stopped, finished] {
        pair.write(End::Server, stream, b"12345678");
        pair.deliver_all(End::Client);
        pair.client.consumed(stream, 8);
    }
    pair.client.stop(stopped, &Code::CANCELLED);
    pair.finish(End::Server, finished);
    pair.deliver_all(End::Client);
    assert_eq!(pair.client.next_control().unwrap(), encode_stop(stopped, &Code::CANCELLED));
    assert_eq!(pair.client.next_control(), None);
}

#[test]
fn bytes_that_came_before_are_trimmed() {
    let mut pair = Pair::new();
    let stream = pair.open(End::Client);
    pair.to_server.push_back(forged(stream, 0, b"abcd", false));
    pair.to_server.push_back(forged(stream, 2, b"cdef", false));
    pair.to_server.push_back(forged(stream, 1, b"bcd", false));
    pair.to_server.push_back(forged(stream, 0, b"abcdef", true));
    assert_eq!(
        pair.deliver_all(End::Server),
        [data(stream, 0, b"abcd", false), data(stream, 4, b"ef", false), data(stream, 6, b"", true)]
    );
}

#[test]
fn control_for_streams_that_are_gone_is_ignored() {
    let mut pair = Pair::new();
    let stream = pair.open(End::Server);
    pair.finish(End::Server, stream);
    pair.deliver_all(End::Client);
    for text in [
        encode_stop(stream, &Code::CANCELLED),
        encode_reset(stream, &Code::EIO, ""),
        crate::message::encode_credit(stream, 0, 1 << 40),
        encode_stop(StreamId(77), &Code::CANCELLED),
    ] {
        assert_eq!(pair.server.receive_text(&text), Ok(Received::Nothing), "{text}");
    }
}

#[test]
fn late_data_of_a_rejected_request_is_discarded_though_its_streams_were_never_opened() {
    let mut pair = Pair::new();
    // The client sends standard input right behind `execute`, before the rejection can have reached it.
    let stdin = pair.client.next_stream();
    pair.client.open_send(stdin, super::pair::lane(0), None);
    let id = pair.client.request(Scope::SESSION, &list_vms()).unwrap();
    pair.send_control(End::Client);
    pair.write(End::Client, stdin, b"for nobody");

    assert!(matches!(pair.deliver(End::Server), Some(Ok(Received::Request { .. }))));
    pair.server.respond(id, &Response::Rejected(Rejection::vm_not_found()));
    assert_eq!(pair.deliver(End::Server), Some(Ok(Received::Nothing)));

    // The next request that opens a stream ends the doubt: ids below it were used, ids above it were not.
    let next = pair.open(End::Client);
    pair.write(End::Client, stdin, b"still for nobody");
    pair.to_server.push_back(forged(StreamId(next.0 + 1), 0, b"?", false));
    assert_eq!(pair.deliver(End::Server), Some(Ok(Received::Nothing)));
    assert_eq!(pair.deliver(End::Server).unwrap().unwrap_err().reason, "stream 3 was never opened");
}

#[test]
fn a_closed_stream_is_forgotten_in_both_directions() {
    let mut pair = Pair::new();
    let stream = pair.open(End::Client);
    pair.server.open_send(stream, super::pair::lane(0), None);
    assert!(pair.server.close_stream(stream));
    assert!(!pair.server.close_stream(stream));
    pair.write(End::Client, stream, b"late");
    assert_eq!(pair.deliver(End::Server), Some(Ok(Received::Nothing)));
    assert_eq!(pair.server.next_control(), None);
}

#[test]
fn stream_ids_rise_over_the_session() {
    let mut pair = Pair::new();
    assert_eq!((pair.client.next_stream(), pair.client.next_stream()), (StreamId(1), StreamId(2)));
    pair.server.open_stream(StreamId(2)).unwrap();
    for used in [2, 1] {
        let rejection = pair.server.open_stream(StreamId(used)).unwrap_err();
        assert_eq!(rejection.code, Code::INVALID_ARGUMENT);
        assert_eq!(rejection.details.field.as_deref(), Some("streams"));
    }
}

#[test]
fn the_last_stream_id_is_never_passed() {
    let mut pair = Pair::new();
    pair.server.open_stream(StreamId(u32::MAX)).unwrap();
    assert_eq!(pair.server.next_stream(), StreamId(u32::MAX));
    assert!(pair.server.open_stream(StreamId(u32::MAX)).is_err());
}

#[test]
fn a_message_never_exceeds_what_the_peer_takes() {
    let limits = crate::session::Limits { max_binary_bytes: 116, ..Default::default() };
    let mut pair = Pair::with(limits);
    let stream = pair.open(End::Client);
    assert_eq!(pair.write(End::Client, stream, &[7; 250]), 250);
    assert_eq!(pair.to_server.len(), 3);
    assert!(
        pair.to_server.iter().all(|message| matches!(message, Message::Binary(bytes) if bytes.len() <= 116))
    );
}
