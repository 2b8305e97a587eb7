//! Requests and their one answer, events, sequence numbers.

use super::{
    End, Message, Pair,
    pair::{list_vms, list_vms_as},
};
use crate::{
    connection::{Received, Violation},
    error::Code,
    id::{ProcessId, RequestId},
    message::{Event, Request, Response, Scope, encode_cancel, encode_event},
    process::{Execute, OutputDrained, StreamEnds},
    session::Limits,
    vm::Vms,
};

fn vms() -> Response {
    Response::Vms(Vms::default())
}

fn drained() -> Event {
    Event::OutputDrained(OutputDrained { process: ProcessId(1_000_000), end: StreamEnds::default() })
}

/// What the client is told of the answers, in order.
fn answers(pair: &mut Pair) -> Vec<(u64, Response)> {
    pair.exchange()
        .0
        .into_iter()
        .map(|received| match received {
            Received::Response { id, response } => (id.0, response),
            other => panic!("{other:?} is no answer"),
        })
        .collect()
}

fn protocol(reason: &str) -> Violation {
    Violation { close_code: 1002, reason: reason.into() }
}

#[test]
fn answers_find_their_request_in_any_order() {
    let mut pair = Pair::new();
    let first = pair.client.request(Scope::SESSION, &list_vms()).unwrap();
    let second = pair.client.request(Scope::SESSION, &list_vms()).unwrap();
    pair.exchange();
    pair.server.respond(second, &vms());
    pair.server.respond(first, &vms());
    assert_eq!(answers(&mut pair), [(second.0, vms()), (first.0, vms())]);
}

#[test]
fn a_request_is_answered_once() {
    let mut pair = Pair::new();
    let id = pair.client.request(Scope::SESSION, &list_vms()).unwrap();
    pair.exchange();
    pair.server.respond(id, &vms());
    pair.server.respond(id, &vms());
    pair.server.respond(RequestId(99), &vms());
    assert_eq!(answers(&mut pair), [(id.0, vms())]);
}

#[test]
fn request_ids_must_rise() {
    for repeated in [2, 1, 0] {
        let mut pair = Pair::new();
        assert!(pair.server.receive_text(&list_vms_as(RequestId(2))).is_ok());
        assert_eq!(
            pair.server.receive_text(&list_vms_as(RequestId(repeated))),
            Err(protocol(&format!("request id {repeated} follows 2")))
        );
    }
}

#[test]
fn request_ids_may_skip() {
    let mut pair = Pair::new();
    assert!(matches!(pair.server.receive_text(&list_vms_as(RequestId(70))), Ok(Received::Request { .. })));
    assert!(matches!(pair.server.receive_text(&list_vms_as(RequestId(80))), Ok(Received::Request { .. })));
}

#[test]
fn a_client_with_too_many_requests_refuses_the_next_itself() {
    let mut pair = Pair::with(Limits { max_requests: 2, ..Limits::default() });
    let first = pair.client.request(Scope::SESSION, &list_vms()).unwrap();
    pair.client.request(Scope::SESSION, &list_vms()).unwrap();
    let rejection = pair.client.request(Scope::SESSION, &list_vms()).unwrap_err();
    assert_eq!(rejection.code, Code::RESOURCE_EXHAUSTED);
    assert_eq!(rejection.details.retryable, Some(true));

    pair.exchange();
    pair.server.respond(first, &vms());
    pair.exchange();
    assert!(pair.client.request(Scope::SESSION, &list_vms()).is_ok());
}

#[test]
fn a_client_refuses_a_request_larger_than_the_sidecar_takes() {
    let mut pair = Pair::with(Limits { max_text_bytes: 1000, max_requests: 1, ..Limits::default() });
    let large = Request::Execute(Execute { command: "x".repeat(1000), ..execute() });
    let rejection = pair.client.request(Scope::SESSION, &large).unwrap_err();
    assert_eq!(rejection.code, Code::TOO_LARGE);
    assert_eq!(pair.client.next_control(), None);
    assert!(pair.client.request(Scope::SESSION, &list_vms()).is_ok(), "it holds no place in the table");
}

fn execute() -> Execute {
    serde_json::from_str(r#"{"process":1,"command":"true"}"#).unwrap()
}

#[test]
fn a_cancel_reaches_an_open_request_which_is_still_answered() {
    let mut pair = Pair::new();
    let id = pair.client.request(Scope::SESSION, &list_vms()).unwrap();
    pair.client.cancel(id);
    let (_, server) = pair.exchange();
    assert_eq!(server.last(), Some(&Received::Cancel { id }));
    pair.server.respond(id, &vms());
    assert_eq!(answers(&mut pair), [(id.0, vms())]);
}

#[test]
fn a_cancel_that_comes_too_late_means_nothing() {
    let mut pair = Pair::new();
    let id = pair.client.request(Scope::SESSION, &list_vms()).unwrap();
    pair.exchange();
    pair.server.respond(id, &vms());
    assert_eq!(pair.server.receive_text(&encode_cancel(id)), Ok(Received::Nothing));
    pair.exchange();
    pair.client.cancel(id);
    assert_eq!(pair.client.next_control(), None);
}

#[test]
fn responses_and_events_share_one_rising_seq() {
    let mut pair = Pair::new();
    let id = pair.client.request(Scope::SESSION, &list_vms()).unwrap();
    pair.exchange();
    pair.server.event(Scope::SESSION, &drained());
    pair.server.respond(id, &vms());
    pair.server.event(Scope::SESSION, &drained());
    pair.send_control(End::Server);
    let seqs: Vec<u64> = pair
        .to_client
        .iter()
        .map(|message| match message {
            Message::Text(text) => serde_json::from_str::<serde_json::Value>(text).unwrap()["seq"].as_u64(),
            Message::Binary(_) => None,
        })
        .map(Option::unwrap)
        .collect();
    // 1 was the welcome.
    assert_eq!(seqs, [2, 3, 4]);
}

#[test]
fn a_seq_that_does_not_rise_closes_the_connection() {
    let mut pair = Pair::new();
    assert!(pair.client.receive_text(&encode_event(5, Scope::SESSION, &drained())).is_ok());
    assert_eq!(
        pair.client.receive_text(&encode_event(5, Scope::SESSION, &drained())),
        Err(protocol("seq 5 follows 5"))
    );
}

#[test]
fn an_event_of_unknown_type_is_ignored_but_counts_in_seq() {
    let mut pair = Pair::new();
    let text = r#"{"kind":"event","seq":9,"type":"weather","body":{"sun":true}}"#;
    assert_eq!(pair.client.receive_text(text), Ok(Received::Nothing));
    assert!(pair.client.receive_text(&encode_event(9, Scope::SESSION, &drained())).is_err());
}

#[test]
fn an_answer_of_unknown_type_still_ends_its_request() {
    let mut pair = Pair::new();
    let id = pair.client.request(Scope::SESSION, &list_vms()).unwrap();
    let text = r#"{"kind":"response","seq":9,"id":2,"type":"weather","body":{"sun":true}}"#;
    let Ok(Received::Response { id: answered, response: Response::Rejected(rejection) }) =
        pair.client.receive_text(text)
    else {
        panic!("the waiter must not wait for ever");
    };
    assert_eq!((answered, rejection.code), (id, Code::UNSUPPORTED));
}

#[test]
fn an_answer_to_a_request_that_was_never_asked_is_ignored() {
    let mut pair = Pair::new();
    let text = r#"{"kind":"response","seq":9,"id":70,"type":"vms","body":{"vms":[]}}"#;
    assert_eq!(pair.client.receive_text(text), Ok(Received::Nothing));
}

#[test]
fn an_unknown_request_is_answered_unsupported() {
    let mut pair = Pair::new();
    let text = r#"{"kind":"request","id":70,"type":"brew","body":{"tea":1}}"#;
    assert_eq!(pair.server.receive_text(text), Ok(Received::Nothing));
    assert_eq!(
        pair.server.next_control().unwrap(),
        r#"{"kind":"response","seq":2,"id":70,"type":"rejected","body":{"code":"unsupported","message":"this sidecar knows no request 'brew'"}}"#
    );
}

#[test]
fn an_ack_means_nothing_where_no_session_outlives_its_connection() {
    let mut pair = Pair::new();
    assert_eq!(pair.server.receive_text(r#"{"kind":"ack","seq":1}"#), Ok(Received::Nothing));
}
