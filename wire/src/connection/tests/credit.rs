//! Flow control: how far a sender may be ahead, and when it may go on.

use super::{
    End, Message, Pair,
    pair::{data, forged},
};
use crate::{
    error::Code,
    message::{Envelope, decode, encode_credit},
    session::Limits,
};

const WINDOW: u64 = 1600;

/// The limits of the `credit` messages on their way to `end`.
fn granted(pair: &Pair, end: End) -> Vec<u64> {
    let wire = if end == End::Client { &pair.to_client } else { &pair.to_server };
    wire.iter()
        .filter_map(|message| match message {
            Message::Text(text) => match decode(text) {
                Ok(Envelope::Credit { limit, .. }) => Some(limit),
                _ => None,
            },
            Message::Binary(_) => None,
        })
        .collect()
}

#[test]
fn a_sender_stops_at_the_window() {
    for sender in [End::Client, End::Server] {
        let mut pair = Pair::with_window(WINDOW);
        let stream = pair.open(sender);
        assert_eq!(pair.write(sender, stream, &[7; 2000]), 1600);
        assert_eq!(pair.end(sender).sent(stream), Some(1600));
        assert_eq!(pair.write(sender, stream, &[7; 2000]), 0);
    }
}

#[test]
fn bytes_that_nobody_consumed_grant_nothing() {
    let mut pair = Pair::with_window(WINDOW);
    let stream = pair.open(End::Server);
    pair.write(End::Server, stream, &[7; 1600]);
    pair.deliver_all(End::Client);
    pair.send_control(End::Client);
    assert!(granted(&pair, End::Server).is_empty());
}

#[test]
fn a_quarter_of_the_window_is_granted_and_less_is_not() {
    let mut pair = Pair::with_window(WINDOW);
    let stream = pair.open(End::Server);
    pair.write(End::Server, stream, &[7; 1000]);
    pair.deliver_all(End::Client);

    pair.client.consumed(stream, 399);
    pair.send_control(End::Client);
    assert!(granted(&pair, End::Server).is_empty());

    pair.client.consumed(stream, 400);
    pair.send_control(End::Client);
    assert_eq!(granted(&pair, End::Server), [2000]);
}

#[test]
fn a_blocked_sender_is_granted_less_than_a_quarter() {
    let mut pair = Pair::with_window(WINDOW);
    let stream = pair.open(End::Server);
    pair.write(End::Server, stream, &[7; 1600]);
    pair.deliver_all(End::Client);
    pair.client.consumed(stream, 100);
    pair.exchange();
    assert_eq!(pair.write(End::Server, stream, &[7; 200]), 100);
}

#[test]
fn a_sender_that_becomes_blocked_is_granted_what_was_consumed_before() {
    let mut pair = Pair::with_window(WINDOW);
    let stream = pair.open(End::Server);
    pair.write(End::Server, stream, &[7; 1000]);
    pair.deliver_all(End::Client);
    // A consumer of lines: it took one, and the next is longer than what is left of the window.
    pair.client.consumed(stream, 300);
    pair.send_control(End::Client);
    assert!(granted(&pair, End::Server).is_empty());

    pair.write(End::Server, stream, &[7; 600]);
    pair.deliver_all(End::Client);
    pair.send_control(End::Client);
    assert_eq!(granted(&pair, End::Server), [1900]);
}

#[test]
fn a_slow_consumer_does_not_turn_a_stream_into_crumbs() {
    let mut pair = Pair::with_window(WINDOW);
    let stream = pair.open(End::Server);
    pair.write(End::Server, stream, &[7; 1600]);
    pair.deliver_all(End::Client);
    for offset in 1..=1600 {
        pair.client.consumed(stream, offset);
        pair.exchange();
        let sent = pair.write(End::Server, stream, &[7; 1600]);
        assert!(sent == 0 || sent >= 100, "a message of {sent} bytes");
        pair.deliver_all(End::Client);
    }
}

#[test]
fn credit_is_coalesced_to_its_latest_value_and_comes_behind_all_other_control() {
    let mut pair = Pair::with_window(WINDOW);
    let stream = pair.open(End::Server);
    pair.write(End::Server, stream, &[7; 1600]);
    pair.deliver_all(End::Client);
    for offset in [400, 800, 1200] {
        pair.client.consumed(stream, offset);
    }
    let asked = pair.client.request(crate::message::Scope::SESSION, &super::pair::list_vms()).unwrap();
    assert_eq!(pair.client.next_control().unwrap(), super::pair::list_vms_as(asked));
    assert_eq!(pair.client.next_control().unwrap(), encode_credit(stream, 1600, 2800));
    assert_eq!(pair.client.next_control(), None);
}

#[test]
fn consumption_is_never_more_than_what_arrived_and_never_goes_back() {
    let mut pair = Pair::with_window(WINDOW);
    let stream = pair.open(End::Server);
    pair.write(End::Server, stream, &[7; 800]);
    pair.deliver_all(End::Client);
    pair.client.consumed(stream, u64::MAX);
    pair.client.consumed(stream, 1);
    pair.send_control(End::Client);
    assert_eq!(granted(&pair, End::Server), [2400]);
}

#[test]
fn a_limit_never_falls() {
    let mut pair = Pair::with_window(WINDOW);
    let stream = pair.open(End::Server);
    pair.to_server.push_back(Message::Text(encode_credit(stream, 0, 2000)));
    pair.to_server.push_back(Message::Text(encode_credit(stream, 0, 10)));
    pair.deliver_all(End::Server);
    assert_eq!(pair.write(End::Server, stream, &[7; 3000]), 2000);
}

#[test]
fn credit_lets_a_blocked_stream_have_its_turn_again() {
    let mut pair = Pair::with_window(WINDOW);
    let stream = pair.open(End::Client);
    assert_eq!(pair.write(End::Client, stream, &[7; 5000]), 1600);
    pair.deliver_all(End::Server);
    pair.server.consumed(stream, 1600);
    pair.exchange();
    let turn = pair.client.next_turn().expect("it was left ready with more to send");
    assert_eq!((turn.stream, turn.max_bytes), (stream, 1600));
}

#[test]
fn data_beyond_credit_closes_the_connection() {
    let mut pair = Pair::with_window(WINDOW);
    let stream = pair.open(End::Client);
    pair.to_server.push_back(forged(stream, 0, &[7; 1601], false));
    let violation = pair.deliver(End::Server).unwrap().unwrap_err();
    assert_eq!(violation.close_code, 1002);
    assert_eq!(violation.reason, "stream 1 sent 1601 bytes, credit is 1600");
}

#[test]
fn a_grant_counts_from_when_it_was_sent() {
    let mut pair = Pair::with_window(WINDOW);
    let stream = pair.open(End::Client);
    pair.write(End::Client, stream, &[7; 1600]);
    pair.deliver_all(End::Server);
    pair.server.consumed(stream, 1600);
    pair.send_control(End::Server);
    pair.to_server.push_back(forged(stream, 1600, &[7; 1600], false));
    assert_eq!(pair.deliver_all(End::Server), [data(stream, 1600, &[7; 1600], false)]);
}

/// Room for two windows.
fn narrow() -> Limits {
    Limits {
        window_bytes: WINDOW,
        min_window_bytes: 100,
        max_in_flight_bytes: 2 * WINDOW,
        ..Limits::default()
    }
}

#[test]
fn streams_beyond_what_may_be_in_flight_get_the_least_window_and_full_ones_again_once_others_have_ended() {
    for sender in [End::Client, End::Server] {
        let mut pair = Pair::with(narrow());
        assert_eq!((pair.client.choose_window(2), pair.client.choose_window(3)), (None, Some(100)));
        let first = pair.open(sender);
        assert_eq!(pair.client.choose_window(1), None);
        let second = pair.open(sender);
        assert_eq!(pair.client.choose_window(1), Some(100));

        let third = pair.open_with(sender, Some(100));
        assert_eq!(pair.write(sender, third, &[7; 2000]), 100);
        pair.deliver_all(sender.peer());
        pair.end(sender.peer()).consumed(third, 100);
        pair.exchange();
        assert_eq!(pair.write(sender, third, &[7; 2000]), 100);

        // Two of them end, each in its own way; the small one still counts.
        pair.finish(sender, first);
        pair.deliver_all(sender.peer());
        assert_eq!(
            (pair.client.choose_window(1), pair.server.check_window(None, 1).is_ok()),
            (Some(100), false)
        );
        pair.end(sender.peer()).stop(second, &Code::CANCELLED);
        pair.exchange();
        assert_eq!((pair.client.choose_window(1), pair.server.check_window(None, 1)), (None, Ok(())));
        pair.end(sender).reset(third, &Code::EIO, "gone");
        pair.exchange();
        assert_eq!((pair.client.choose_window(2), pair.server.check_window(None, 2)), (None, Ok(())));
    }
}

#[test]
fn a_window_is_from_the_least_to_the_sessions_own_and_a_full_one_needs_room() {
    let mut pair = Pair::with(narrow());
    for wrong in [0, 99, WINDOW + 1, u64::MAX] {
        let rejection = pair.server.check_window(Some(wrong), 1).unwrap_err();
        assert_eq!(rejection.code, Code::INVALID_ARGUMENT);
        assert_eq!(rejection.details.field.as_deref(), Some("window_bytes"));
    }
    for (window, streams) in [(None, 2), (Some(WINDOW), 2), (Some(1000), 3), (Some(100), 100)] {
        assert_eq!(pair.server.check_window(window, streams), Ok(()), "{window:?} {streams}");
    }
    pair.open(End::Client);
    let rejection = pair.server.check_window(None, 2).unwrap_err();
    assert_eq!(rejection.code, Code::RESOURCE_EXHAUSTED);
    let details = rejection.details;
    assert_eq!(details.limit_name.as_deref(), Some("max_in_flight_bytes"));
    assert_eq!((details.limit, details.observed), (Some(2 * WINDOW), Some(3 * WINDOW)));
}

#[test]
fn the_worked_example_of_protocol_md_is_what_happens() {
    let mut pair = Pair::new();
    let stream = pair.open(End::Server);
    let endless = vec![7; 1 << 20];
    let mut offset = 0;
    let mut send = |pair: &mut Pair| {
        let sent = pair.write(End::Server, stream, &endless) as u64;
        let messages = pair.to_client.len();
        pair.deliver_all(End::Client);
        offset += sent;
        (messages, offset)
    };
    assert_eq!(send(&mut pair), (4, 262_144));

    for (consumed, received, limit) in [(16_384, 262_144, 278_528), (81_920, 278_528, 344_064)] {
        pair.client.consumed(stream, consumed);
        assert_eq!(pair.client.next_control(), Some(encode_credit(stream, received, limit)));
        pair.to_server.push_back(Message::Text(encode_credit(stream, received, limit)));
        pair.deliver_all(End::Server);
        assert_eq!(send(&mut pair), (1, limit));
    }

    pair.client.consumed(stream, 344_064);
    assert_eq!(pair.client.next_control(), Some(encode_credit(stream, 344_064, 606_208)));
}
