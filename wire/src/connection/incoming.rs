//! What arrives: who may send it, what the core does with it, and what is left for the driver.

use bytes::Bytes;

use super::{Connection, Role, Stage};
use crate::{
    error::{Code, Rejection},
    id::{RequestId, StreamId},
    message::{self, Envelope, Event, Request, Response, Scope},
    stdio::{HEADER_BYTES, Header},
    text::clip,
};

/// A close frame holds 125 bytes, two of which are the code.
const MAX_REASON_BYTES: usize = 123;

/// Why the connection must be closed, with the WebSocket close code to do it with.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Violation {
    /// 1002 protocol error, 1008 policy, 1009 too big.
    pub close_code: u16,
    /// What the peer did; short enough for a close frame.
    pub reason: String,
}

impl Violation {
    fn new(close_code: u16, reason: impl AsRef<str>) -> Self {
        Self { close_code, reason: clip(reason.as_ref(), MAX_REASON_BYTES) }
    }

    pub(super) fn protocol(reason: impl AsRef<str>) -> Self {
        Self::new(1002, reason)
    }

    fn policy(reason: impl AsRef<str>) -> Self {
        Self::new(1008, reason)
    }

    fn too_big(what: &str, size: u64, limit: u64) -> Self {
        Self::new(1009, format!("{what} of {size} bytes, limit is {limit}"))
    }
}

/// What a message amounts to, once the core has done its own part.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are named by each line")]
pub enum Received {
    /// A request to answer with [`Connection::respond`], exactly once.
    Request { id: RequestId, scope: Scope, request: Request },
    /// The answer to a request of ours.
    Response { id: RequestId, response: Response },
    /// An event.
    Event { scope: Scope, event: Event },
    /// The peer no longer cares for a request that is still open.
    Cancel { id: RequestId },
    /// Bytes of a stream; the payload begins at `offset`. With `fin` the stream is over.
    Data { stream: StreamId, offset: u64, payload: Bytes, fin: bool },
    /// The peer ended a stream, incomplete.
    Reset { stream: StreamId, code: Code, message: String },
    /// The peer wants no more of a stream we send.
    Stopped { stream: StreamId, code: Code },
    /// Nothing for the driver to do (it may have become possible to send).
    Nothing,
}

impl Connection {
    /// Takes one text message.
    pub fn receive_text(&mut self, text: &str) -> Result<Received, Violation> {
        let size = text.len() as u64;
        if size > self.limits.max_text_bytes.saturating_mul(2) {
            return Err(Violation::too_big("text message", size, self.limits.max_text_bytes));
        }
        let envelope = message::decode(text).map_err(|error| self.unreadable(&error.message))?;
        self.admit(&envelope)?;
        Ok(match envelope {
            Envelope::Request { id, scope, request } => self.receive_request(id, scope, request, size)?,
            Envelope::Response { seq, id, response } => {
                self.receive_seq(seq)?;
                self.receive_response(id, response)
            }
            Envelope::Event { seq, scope, event } => {
                self.receive_seq(seq)?;
                event.map_or(Received::Nothing, |event| Received::Event { scope, event })
            }
            Envelope::Cancel { id } if self.requests.is_open(id) => Received::Cancel { id },
            Envelope::Credit { stream, limit, .. } => {
                self.sending.credit(stream, limit);
                Received::Nothing
            }
            Envelope::Reset { stream, code, message } if self.close_stream(stream) => {
                Received::Reset { stream, code, message }
            }
            Envelope::Stop { stream, code } if self.sending.close(stream) => {
                Received::Stopped { stream, code }
            }
            Envelope::Cancel { .. }
            | Envelope::Reset { .. }
            | Envelope::Stop { .. }
            | Envelope::Ack { .. } => Received::Nothing,
        })
    }

    /// What a message that cannot be read means: before the session is open, that it is not the `hello` it has to be.
    fn unreadable(&self, why: &str) -> Violation {
        match self.role {
            Role::Server(Stage::Silent | Stage::Greeting(_)) => {
                Violation::policy(format!("{HELLO_FIRST}: {why}"))
            }
            Role::Server(Stage::Open) | Role::Client => Violation::protocol(why),
        }
    }

    /// Whether the peer may send this kind of message, and already: a client asks, a sidecar answers, and nothing
    /// comes before `hello`.
    fn admit(&self, envelope: &Envelope) -> Result<(), Violation> {
        match (self.role, envelope) {
            (Role::Client, Envelope::Request { .. } | Envelope::Cancel { .. }) => {
                Err(Violation::protocol("a sidecar sends no request and no cancel"))
            }
            (Role::Server(Stage::Open), Envelope::Response { .. } | Envelope::Event { .. }) => {
                Err(Violation::protocol("a client sends no response and no event"))
            }
            (Role::Client | Role::Server(Stage::Open), _)
            | (Role::Server(Stage::Silent), Envelope::Request { request: Ok(Request::Hello(_)), .. }) => {
                Ok(())
            }
            (Role::Server(Stage::Silent), Envelope::Request { request: Err(rejection), .. }) => {
                Err(Violation::policy(format!("{HELLO_FIRST}: {}", rejection.message)))
            }
            (Role::Server(stage), _) => stage.admit_only_open(),
        }
    }

    fn receive_request(
        &mut self,
        id: RequestId,
        scope: Scope,
        request: Result<Request, Rejection>,
        size: u64,
    ) -> Result<Received, Violation> {
        self.requests.receive(id)?;
        let is_hello = matches!(request, Ok(Request::Hello(_)));
        let again = is_hello && self.role == Role::Server(Stage::Open);
        if is_hello && !again {
            self.role = Role::Server(Stage::Greeting(id));
        }
        let refusal = self
            .text_too_large(size)
            .or_else(|| again.then(|| Rejection::new(Code::FAILED_PRECONDITION, HELLO_ONCE)))
            .or_else(|| self.requests.over(self.limits.max_requests));
        match refusal.map_or(request, Err) {
            Ok(request) => Ok(Received::Request { id, scope, request }),
            Err(rejection) => {
                self.respond(id, &Response::Rejected(rejection));
                Ok(Received::Nothing)
            }
        }
    }

    /// Whoever asked gets an answer, even if it is one that this version cannot read.
    fn receive_response(&mut self, id: RequestId, response: Option<Response>) -> Received {
        if !self.requests.close(id) {
            return Received::Nothing;
        }
        let response = response.unwrap_or_else(|| {
            let message = "the sidecar's answer is of a type this client does not know";
            Response::Rejected(Rejection::new(Code::UNSUPPORTED, message))
        });
        Received::Response { id, response }
    }

    fn receive_seq(&mut self, seq: u64) -> Result<(), Violation> {
        if seq <= self.seq_received {
            return Err(Violation::protocol(format!("seq {seq} follows {}", self.seq_received)));
        }
        self.seq_received = seq;
        Ok(())
    }

    /// Takes one binary message.
    pub fn receive_binary(&mut self, mut message: Bytes) -> Result<Received, Violation> {
        let (size, limit) = (message.len() as u64, self.limits.max_binary_bytes);
        if size > limit.saturating_mul(2) {
            return Err(Violation::too_big("binary message", size, limit));
        }
        if let Role::Server(stage) = self.role {
            stage.admit_only_open()?;
        }
        let header = Header::decode(&message).map_err(|error| Violation::protocol(error.to_string()))?;
        let stream = header.stream;
        if self.opened.is_none_or(|opened| stream > opened) {
            return if self.refused {
                Ok(Received::Nothing)
            } else {
                Err(Violation::protocol(format!("stream {stream} was never opened")))
            };
        }
        if size > limit {
            return Ok(self.refuse_oversize(stream, size, limit));
        }
        let payload = message.split_off(HEADER_BYTES);
        Ok(self.receiving.accept(header, payload)?.map_or(Received::Nothing, |(offset, payload)| {
            Received::Data { stream, offset, payload, fin: header.fin }
        }))
    }

    /// One stream's mistake ends that stream only.
    fn refuse_oversize(&mut self, stream: StreamId, size: u64, limit: u64) -> Received {
        if !self.receiving.close(stream) {
            return Received::Nothing;
        }
        let message = format!("binary message of {size} bytes, limit is {limit}");
        self.control.push_back(message::encode_reset(stream, &Code::TOO_LARGE, &message));
        Received::Reset { stream, code: Code::TOO_LARGE, message }
    }
}

impl Stage {
    fn admit_only_open(self) -> Result<(), Violation> {
        match self {
            Stage::Silent => Err(Violation::policy(HELLO_FIRST)),
            Stage::Greeting(_) => Err(Violation::policy(HELLO_UNANSWERED)),
            Stage::Open => Ok(()),
        }
    }
}

const HELLO_FIRST: &str = "the first message must be hello";
const HELLO_UNANSWERED: &str = "hello is not answered yet";
const HELLO_ONCE: &str = "the session is open: hello comes first and once";
