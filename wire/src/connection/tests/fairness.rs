//! Whose turn it is.

use super::{
    End, Pair,
    pair::{lane, list_vms},
};
use crate::{id::StreamId, message::Scope, stdio::CHUNK_BYTES};

/// Who gets the next `turns`, each taking one byte and having more.
fn turns(pair: &mut Pair, turns: usize) -> Vec<u32> {
    (0..turns)
        .map(|_| {
            let turn = pair.server.next_turn().expect("all are ready and have credit");
            pair.server.frame(turn.stream, 1, false, true).unwrap();
            turn.stream.0
        })
        .collect()
}

#[test]
fn turns_go_round_over_the_streams_of_a_vm() {
    let mut pair = Pair::new();
    for _ in 0..3 {
        let stream = pair.open(End::Server);
        pair.server.ready(stream);
    }
    assert_eq!(turns(&mut pair, 7), [1, 2, 3, 1, 2, 3, 1]);
}

#[test]
fn turns_go_round_over_vms_first_however_many_streams_each_has() {
    let mut pair = Pair::new();
    for vm in [0, 0, 0, 1] {
        let stream = pair.open_in(End::Server, lane(vm));
        pair.server.ready(stream);
    }
    assert_eq!(turns(&mut pair, 9), [1, 4, 2, 4, 3, 4, 1, 4, 2]);
}

#[test]
fn a_stream_without_credit_or_bytes_costs_the_others_no_turn() {
    let mut pair = Pair::with_window(2);
    let (blocked, idle, busy) = (pair.open(End::Server), pair.open(End::Server), pair.open(End::Server));
    for stream in [blocked, idle, busy] {
        pair.server.ready(stream);
    }
    let turn = pair.server.next_turn().unwrap();
    assert_eq!((turn.stream, turn.max_bytes), (blocked, 2));
    pair.server.frame(blocked, 2, false, true);
    assert_eq!(pair.server.next_turn().unwrap().stream, idle);
    pair.server.idle(idle);
    assert_eq!(turns(&mut pair, 2), [busy.0, busy.0]);
    assert_eq!(pair.server.next_turn(), None);
}

#[test]
fn a_stream_said_to_be_ready_many_times_has_one_place_in_the_round() {
    let mut pair = Pair::new();
    let (one, two) = (pair.open(End::Server), pair.open(End::Server));
    for stream in [one, one, two, one, two] {
        pair.server.ready(stream);
    }
    assert_eq!(turns(&mut pair, 4), [1, 2, 1, 2]);
}

#[test]
fn an_idle_stream_comes_back_when_it_is_ready() {
    let mut pair = Pair::new();
    let stream = pair.open(End::Server);
    pair.server.ready(stream);
    pair.server.next_turn().unwrap();
    pair.server.idle(stream);
    assert_eq!(pair.server.next_turn(), None);
    pair.server.ready(stream);
    assert_eq!(pair.server.next_turn().unwrap().stream, stream);
}

#[test]
fn a_turn_carries_at_most_one_chunk() {
    let mut pair = Pair::new();
    let stream = pair.open(End::Server);
    pair.server.ready(stream);
    assert_eq!(pair.server.next_turn().unwrap().max_bytes, CHUNK_BYTES);
}

#[test]
fn control_waits_behind_no_stream() {
    let mut pair = Pair::new();
    let stream = pair.open(End::Client);
    pair.client.ready(stream);
    pair.client.request(Scope::SESSION, &list_vms()).unwrap();
    // A driver asks for control first, and again between any two turns.
    assert!(pair.client.next_control().is_some());
    let turn = pair.client.next_turn().unwrap();
    pair.client.frame(turn.stream, turn.max_bytes, false, true);
    pair.client.request(Scope::SESSION, &list_vms()).unwrap();
    assert!(pair.client.next_control().is_some());
}

#[test]
fn the_backlog_counts_what_the_peer_has_not_taken() {
    let mut pair = Pair::new();
    for _ in 0..3 {
        pair.client.request(Scope::SESSION, &list_vms()).unwrap();
    }
    assert_eq!(pair.client.control_backlog(), 3);
    pair.exchange();
    assert_eq!(pair.client.control_backlog(), 0);
}

#[test]
fn streams_that_are_closed_in_the_round_are_passed_over() {
    let mut pair = Pair::new();
    let (gone, stays) = (pair.open(End::Server), pair.open(End::Server));
    pair.server.ready(gone);
    pair.server.ready(stays);
    pair.server.close_stream(gone);
    assert_eq!(turns(&mut pair, 2), [2, 2]);
    assert_eq!(pair.server.sent(StreamId(1)), None);
}
