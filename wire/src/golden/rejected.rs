//! Input from a client that breaks the rules, and what a sidecar answers.

use bytes::Bytes;

use super::{binary::hex, client, pretty};
use crate::{connection::Connection, message, session::Limits};

/// What a client sends.
#[derive(Debug, Clone)]
pub enum Input {
    /// A text message.
    Text(&'static str),
    /// A binary message.
    Binary(&'static [u8]),
}

/// What becomes of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The text message that is sent back; the session lives on.
    Answer(String),
    /// The code and the reason with which the connection is closed.
    Close(u16, String),
}

/// Input that breaks the rules.
#[derive(Debug, Clone)]
pub struct Rejected {
    /// Its file, without folder and ending.
    pub name: &'static str,
    /// Sent behind `hello` and its answer, or as the very first message.
    pub after_hello: bool,
    /// What is sent.
    pub input: Input,
}

impl Rejected {
    /// What a sidecar does with it.
    pub fn outcome(&self) -> Outcome {
        let mut sidecar = Connection::server(Limits::default());
        if self.after_hello {
            greet(&mut sidecar);
        }
        let received = match self.input {
            Input::Text(text) => sidecar.receive_text(text),
            Input::Binary(bytes) => sidecar.receive_binary(Bytes::from_static(bytes)),
        };
        match received {
            Ok(_) => Outcome::Answer(sidecar.next_control().expect("rejected input is answered")),
            Err(violation) => Outcome::Close(violation.close_code, violation.reason),
        }
    }

    pub(super) fn file(&self) -> String {
        let quoted = |text: &str| serde_json::Value::from(text).to_string();
        let input = match self.input {
            Input::Text(text) => format!(r#""text":{}"#, quoted(text)),
            Input::Binary(bytes) => format!(r#""hex":{}"#, quoted(&hex(bytes))),
        };
        let outcome = match self.outcome() {
            Outcome::Answer(text) => format!(r#""answer":{text}"#),
            Outcome::Close(code, reason) => {
                format!(r#""close":{{"code":{code},"reason":{}}}"#, quoted(&reason))
            }
        };
        pretty(&format!(r#"{{"after_hello":{},{input},{outcome}}}"#, self.after_hello))
    }
}

/// `hello` and `welcome` are exchanged: ids and seq begin at 2.
fn greet(sidecar: &mut Connection) {
    let hello = client().into_iter().find(|sample| sample.name == "hello").expect("hello has a sample");
    sidecar.receive_text(&hello.text()).expect("hello is welcome");
    let message::Envelope::Request { id, .. } = hello.envelope else { return };
    let welcome = super::sidecar().into_iter().find(|sample| sample.name == "welcome");
    let message::Envelope::Response { response: Some(welcome), .. } =
        welcome.expect("welcome has a sample").envelope
    else {
        return;
    };
    sidecar.respond(id, &welcome);
    sidecar.next_control();
}

/// Messages of every kind of fault.
pub fn rejected() -> Vec<Rejected> {
    let text = |name, text| Rejected { name, after_hello: true, input: Input::Text(text) };
    let frame = |name, bytes| Rejected { name, after_hello: true, input: Input::Binary(bytes) };
    let first = |name, text| Rejected { name, after_hello: false, input: Input::Text(text) };
    vec![
        text("not_json", "hello?"),
        text("not_an_object", r#"["request",2,null,null,"list_vms"]"#),
        text("cut_off", r#"{"kind":"request","id":2,"type":"list_vms""#),
        text("no_kind", r#"{"id":2,"type":"list_vms"}"#),
        text("unknown_kind", r#"{"kind":"greeting","id":2}"#),
        text("no_id", r#"{"kind":"request","type":"list_vms"}"#),
        text("negative_id", r#"{"kind":"request","id":-2,"type":"list_vms"}"#),
        text("id_too_large", r#"{"kind":"request","id":9007199254740992,"type":"list_vms"}"#),
        text("id_too_large_of_unreadable", r#"{"kind":"request","id":9007199254740992,"type":7}"#),
        text("id_does_not_rise", r#"{"kind":"request","id":1,"type":"list_vms"}"#),
        text("no_type", r#"{"kind":"request","id":2}"#),
        text("unknown_request", r#"{"kind":"request","id":2,"type":"resize_pty","body":{"process":1}}"#),
        text(
            "second_hello",
            r#"{"kind":"request","id":2,"type":"hello","body":{"protocol_min":1,"protocol_max":1,"client":{"name":"c","version":"1"}}}"#,
        ),
        text("scope_is_no_vm", r#"{"kind":"request","id":2,"scope":{"vm":"seven"},"type":"dispose_vm"}"#),
        text("missing_field", r#"{"kind":"request","id":2,"type":"execute","body":{"process":1000000}}"#),
        text(
            "wrong_type",
            r#"{"kind":"request","id":2,"type":"execute","body":{"process":"1000000","command":"true"}}"#,
        ),
        text(
            "wrong_element",
            r#"{"kind":"request","id":2,"type":"execute","body":{"process":1000000,"command":"true","args":["a",7]}}"#,
        ),
        text(
            "missing_nested_field",
            r#"{"kind":"request","id":2,"type":"execute","body":{"process":1000000,"command":"true","drain":{"quiet_ms":50}}}"#,
        ),
        text(
            "unknown_choice",
            r#"{"kind":"request","id":2,"type":"execute","body":{"process":1000000,"command":"true","stdout":"file"}}"#,
        ),
        text(
            "unknown_signal",
            r#"{"kind":"request","id":2,"type":"signal_process","body":{"process":1000000,"signal":"SIGNOTHING","target":"tree"}}"#,
        ),
        text(
            "not_base64",
            r#"{"kind":"request","id":2,"type":"execute","body":{"process":1000000,"command":"?","command_b64":"!"}}"#,
        ),
        text(
            "integer_too_large",
            r#"{"kind":"request","id":2,"type":"process_snapshot","body":{"max_bytes":9007199254740992}}"#,
        ),
        text(
            "float_for_integer",
            r#"{"kind":"request","id":2,"type":"process_snapshot","body":{"max_bytes":1.5}}"#,
        ),
        text("body_is_no_object", r#"{"kind":"request","id":2,"type":"execute","body":[1000000,"true"]}"#),
        text(
            "duplicate_field",
            r#"{"kind":"request","id":2,"type":"execute","body":{"process":1,"process":2,"command":"true"}}"#,
        ),
        text("credit_without_limit", r#"{"kind":"credit","stream":2,"received":10}"#),
        text(
            "response_from_a_client",
            r#"{"kind":"response","seq":1,"id":1,"type":"vms","body":{"vms":[]}}"#,
        ),
        first("before_hello", r#"{"kind":"request","id":1,"type":"list_vms"}"#),
        first(
            "malformed_hello",
            r#"{"kind":"request","id":1,"type":"hello","body":{"protocol_min":1,"protocol_max":1}}"#,
        ),
        frame("frame_too_short", &[1, 0, 0, 0]),
        frame("frame_version", &[2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
        frame("frame_flags", &[1, 2, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
        frame("frame_reserved", &[1, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
        frame("stream_never_opened", &[1, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 120]),
    ]
}
