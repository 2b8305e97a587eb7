//! Flow control: how far a sender may be ahead, and when it may go on.

use super::{
    End, Message, Pair,
    pair::{data, forged},
};
use crate::message::{Envelope, decode, encode_credit};

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
