//! One example of every message: the values behind `golden/`, which the generator writes and the tests read.
//!
//! `client/` and `sidecar/` hold what each end says, `binary/` frames, `observer/` lines of an observation,
//! `accepted-only/` forms that are read but never produced, `rejected/` input that breaks the rules and what it is
//! answered. A client in another language can run all six against its own codec.

mod accepted_only;
mod binary;
mod client;
mod observer;
mod pretty;
mod rejected;
mod sidecar;

use std::collections::BTreeMap;

use crate::message::{self, Envelope, Event, Request, Response};

pub use accepted_only::{AcceptedOnly, accepted_only};
pub use binary::{Frame, binary};
pub use client::client;
pub use observer::{Line, observer};
pub use pretty::pretty;
pub use rejected::{Input, Outcome, Rejected, rejected};
pub use sidecar::sidecar;

/// A message that is produced and read alike.
#[derive(Debug, Clone)]
pub struct Sample {
    /// Its file, without folder and ending; begins with the message's type or kind.
    pub name: &'static str,
    /// Its value.
    pub envelope: Envelope,
}

impl Sample {
    fn new(name: &'static str, envelope: Envelope) -> Self {
        Self { name, envelope }
    }

    /// The message as it is on the wire.
    pub fn text(&self) -> String {
        encode(&self.envelope).expect("samples are messages that are produced")
    }
}

/// Writes an envelope; `None` for what this version reads but never produces.
pub fn encode(envelope: &Envelope) -> Option<String> {
    Some(match envelope {
        Envelope::Request { id, scope, request } => {
            message::encode_request(*id, *scope, request.as_ref().ok()?)
        }
        Envelope::Response { seq, id, response } => message::encode_response(*seq, *id, response.as_ref()?),
        Envelope::Event { seq, scope, event } => message::encode_event(*seq, *scope, event.as_ref()?),
        Envelope::Cancel { id } => message::encode_cancel(*id),
        Envelope::Credit { stream, received, limit } => message::encode_credit(*stream, *received, *limit),
        Envelope::Reset { stream, code, message } => message::encode_reset(*stream, code, message),
        Envelope::Stop { stream, code } => message::encode_stop(*stream, code),
        Envelope::Ack { .. } => return None,
    })
}

/// The name of a message: its type, or its kind where it has none.
pub fn name(envelope: &Envelope) -> &'static str {
    match envelope {
        Envelope::Request { request, .. } => request.as_ref().map_or("", Request::name),
        Envelope::Response { response, .. } => response.as_ref().map_or("", Response::name),
        Envelope::Event { event, .. } => event.as_ref().map_or("", Event::name),
        Envelope::Cancel { .. } => "cancel",
        Envelope::Credit { .. } => "credit",
        Envelope::Reset { .. } => "reset",
        Envelope::Stop { .. } => "stop",
        Envelope::Ack { .. } => "ack",
    }
}

/// Every file of `golden/`: its path in there and its text.
pub fn files() -> BTreeMap<String, String> {
    let texts = |folder: &'static str, samples: Vec<Sample>| {
        samples
            .into_iter()
            .map(move |sample| (format!("{folder}/{}.json", sample.name), pretty(&sample.text())))
    };
    texts("client", client())
        .chain(texts("sidecar", sidecar()))
        .chain(observer().iter().map(|line| (format!("observer/{}.json", line.name), pretty(&line.text()))))
        .chain(binary().iter().map(|frame| (format!("binary/{}.hex", frame.name), frame.hex())))
        .chain(accepted_only().iter().map(|form| (format!("accepted-only/{}.json", form.name), form.file())))
        .chain(rejected().iter().map(|input| (format!("rejected/{}.json", input.name), input.file())))
        .collect()
}
