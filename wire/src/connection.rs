//! The sans-I/O connection core: what both ends do with messages, without sockets and without a clock.
//!
//! A driver feeds [`Connection::receive_text`] and [`Connection::receive_binary`] with what arrives, acts on the
//! [`Received`] they return, and asks for what to send next: first [`Connection::next_control`] until it is empty,
//! then one [`Connection::next_turn`] — the stream whose turn it is and how much it may carry — which it answers with
//! [`Connection::frame`] once it has bytes, or [`Connection::idle`] if it has none after all. A message is chosen only
//! when the one before is in the socket, so control never waits behind more than one chunk.
//!
//! ```text
//!  sender                                        receiver
//!  ready(s) ──► turn(s, room) ──► frame(s) ═════► data ──► … consumed(s, n)
//!                 ▲                                              │ a quarter of the window, or the sender is blocked
//!                 └───────────── credit.limit ◄──────────────────┘
//!  frame(s, fin) ═══════════════════════════════► fin          (both ends forget the stream)
//!  reset(s) ────────────────────────────────────► reset        (ends here, incomplete)
//!  stopped ◄──────────────────────────────────── stop(s)       (send no more)
//! ```
//!
//! Invariants: offsets never fall; no byte beyond the granted limit is accepted; data for a stream that was used and
//! is closed is discarded; data for a stream never opened, a hole, or data beyond credit is a [`Violation`].

mod receive;
mod requests;
mod send;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use bytes::Bytes;

use crate::{
    error::{Code, Rejection},
    id::{RequestId, StreamId, VmId},
    message::{self, Envelope, Event, Request, Response, Scope},
    session::Limits,
    stdio::{HEADER_BYTES, Header},
};

pub use send::Turn;

/// Why the connection must be closed, with the WebSocket close code to do it with.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Violation {
    /// 1002 protocol error, 1008 policy, 1009 too big.
    pub close_code: u16,
    /// What the peer did.
    pub reason: String,
}

impl Violation {
    pub(crate) fn protocol(reason: impl Into<String>) -> Self {
        Self { close_code: 1002, reason: reason.into() }
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
    /// The peer's side of a stream ended incomplete.
    Reset { stream: StreamId, code: Code, message: String },
    /// The peer wants no more of a stream we send.
    Stopped { stream: StreamId, code: Code },
    /// Nothing for the driver to do (it may have become possible to send).
    Nothing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Client,
    Server { greeted: bool },
}

/// One end of a connection.
#[derive(Debug)]
pub struct Connection {
    role: Role,
    limits: Limits,
    control: VecDeque<String>,
    requests: requests::Requests,
    sending: send::Sending,
    receiving: receive::Receiving,
    opened: Option<StreamId>,
    seq_sent: u64,
    seq_received: u64,
}

impl Connection {
    /// The end that asks.
    pub fn client(limits: Limits) -> Self {
        Self::new(Role::Client, limits)
    }

    /// The end that answers; refuses everything before `hello`.
    pub fn server(limits: Limits) -> Self {
        Self::new(Role::Server { greeted: false }, limits)
    }

    fn new(role: Role, limits: Limits) -> Self {
        Self {
            role,
            limits,
            control: VecDeque::new(),
            requests: requests::Requests::default(),
            sending: send::Sending::default(),
            receiving: receive::Receiving::default(),
            opened: None,
            seq_sent: 0,
            seq_received: 0,
        }
    }

    /// The limits in force.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Takes over the limits a `welcome` announced; before the first stream is opened.
    pub fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }

    // ---- control, outgoing ----

    /// Queues a request and returns its id; refused where too many already wait for their answer.
    pub fn request(&mut self, scope: Scope, request: &Request) -> Result<RequestId, Rejection> {
        let id = self.requests.send(self.limits.max_requests)?;
        self.control.push_back(message::encode_request(id, scope, request));
        Ok(id)
    }

    /// Answers a request; a second answer to the same one is not sent.
    pub fn respond(&mut self, id: RequestId, response: &Response) {
        if self.requests.close(id) {
            self.seq_sent += 1;
            self.control.push_back(message::encode_response(self.seq_sent, id, response));
        }
    }

    /// Queues an event.
    pub fn event(&mut self, scope: Scope, event: &Event) {
        self.seq_sent += 1;
        self.control.push_back(message::encode_event(self.seq_sent, scope, event));
    }

    /// Says that nobody waits for an answer any more; the answer still comes.
    pub fn cancel(&mut self, id: RequestId) {
        self.control.push_back(message::encode_cancel(id));
    }

    /// The next control message to send, if any; credit comes last and only in its latest value.
    pub fn next_control(&mut self) -> Option<String> {
        if let Some(text) = self.control.pop_front() {
            return Some(text);
        }
        let credit = self.receiving.next_credit()?;
        Some(message::encode_credit(credit.stream, credit.received, credit.limit))
    }

    /// Control messages that wait to be sent: a driver whose peer does not read stops reading itself at some bound.
    pub fn control_backlog(&self) -> usize {
        self.control.len()
    }

    // ---- streams ----

    /// The id for the next stream this client opens.
    pub fn next_stream(&mut self) -> StreamId {
        let id = StreamId(self.opened.map_or(1, |id| id.0 + 1));
        self.opened = Some(id);
        id
    }

    /// Notes that the peer's request opens `stream`; ids must rise.
    pub fn open_stream(&mut self, stream: StreamId) -> Result<(), Rejection> {
        if self.opened.is_some_and(|opened| stream <= opened) {
            let message = format!("stream {stream} was used before: ids rise over a session");
            return Err(Rejection::invalid("streams", message));
        }
        self.opened = Some(stream);
        Ok(())
    }

    /// Begins sending on a stream; `lane` is the VM whose streams share one turn with it.
    pub fn open_send(&mut self, stream: StreamId, lane: VmId) {
        self.sending.open(stream, lane, self.limits.window_bytes);
    }

    /// Begins receiving on a stream.
    pub fn open_receive(&mut self, stream: StreamId) {
        self.receiving.open(stream, self.limits.window_bytes);
    }

    /// There are bytes, or the end, to send on a stream; it gets its turn when credit allows.
    pub fn ready(&mut self, stream: StreamId) {
        self.sending.ready(stream);
    }

    /// The stream whose turn it is, if any has something to send and credit to do so.
    pub fn next_turn(&mut self) -> Option<Turn> {
        self.sending.next_turn()
    }

    /// The turn's stream had nothing to send after all.
    pub fn idle(&mut self, stream: StreamId) {
        self.sending.idle(stream);
    }

    /// The header for `len` bytes to send now on the stream whose turn it is; `more` keeps it ready.
    ///
    /// `None` if the stream was closed meanwhile: the bytes are dropped.
    pub fn frame(&mut self, stream: StreamId, len: usize, fin: bool, more: bool) -> Option<Header> {
        self.sending.frame(stream, len as u64, fin, more)
    }

    /// How many bytes have been framed on a stream that is still open for sending.
    pub fn sent(&self, stream: StreamId) -> Option<u64> {
        self.sending.sent(stream)
    }

    /// Whether a stream is still open for sending.
    pub fn is_sending(&self, stream: StreamId) -> bool {
        self.sending.sent(stream).is_some()
    }

    /// The consumer has taken everything below `offset`: credit may flow.
    pub fn consumed(&mut self, stream: StreamId, offset: u64) {
        self.receiving.consumed(stream, offset);
    }

    /// Ends a stream we send, incomplete.
    pub fn reset(&mut self, stream: StreamId, code: &Code, reason: &str) {
        if self.sending.close(stream) {
            self.control.push_back(message::encode_reset(stream, code, reason));
        }
    }

    /// Asks for no more of a stream we receive.
    pub fn stop(&mut self, stream: StreamId, code: &Code) {
        if self.receiving.close(stream) {
            self.control.push_back(message::encode_stop(stream, code));
        }
    }

    /// Forgets both directions of a stream without a word, where the request that opened it was rejected.
    pub fn close_stream(&mut self, stream: StreamId) {
        self.sending.close(stream);
        self.receiving.close(stream);
    }

    // ---- incoming ----

    /// Takes one text message.
    pub fn receive_text(&mut self, text: &str) -> Result<Received, Violation> {
        let size = text.len() as u64;
        if size > self.limits.max_text_bytes * 2 {
            let reason = format!("text message of {size} bytes, limit is {}", self.limits.max_text_bytes);
            return Err(Violation { close_code: 1009, reason });
        }
        let envelope = message::decode(text).map_err(|error| Violation::protocol(error.message))?;
        match envelope {
            Envelope::Request { id, scope, request } => self.receive_request(id, scope, request, size),
            Envelope::Response { seq, id, response } => {
                self.receive_seq(seq)?;
                let known = self.requests.close(id);
                Ok(response
                    .filter(|_| known)
                    .map_or(Received::Nothing, |response| Received::Response { id, response }))
            }
            Envelope::Event { seq, scope, event } => {
                self.receive_seq(seq)?;
                Ok(event.map_or(Received::Nothing, |event| Received::Event { scope, event }))
            }
            Envelope::Cancel { id } => {
                Ok(if self.requests.is_open(id) { Received::Cancel { id } } else { Received::Nothing })
            }
            Envelope::Credit { stream, limit, .. } => {
                self.sending.credit(stream, limit);
                Ok(Received::Nothing)
            }
            Envelope::Reset { stream, code, message } => {
                let known = self.receiving.close(stream) | self.sending.close(stream);
                Ok(if known { Received::Reset { stream, code, message } } else { Received::Nothing })
            }
            Envelope::Stop { stream, code } => Ok(if self.sending.close(stream) {
                Received::Stopped { stream, code }
            } else {
                Received::Nothing
            }),
            Envelope::Ack { .. } => Ok(Received::Nothing),
        }
    }

    fn receive_request(
        &mut self,
        id: RequestId,
        scope: Scope,
        request: Result<Request, Rejection>,
        size: u64,
    ) -> Result<Received, Violation> {
        let Role::Server { greeted } = &mut self.role else {
            return Err(Violation::protocol("a sidecar sent a request"));
        };
        let is_hello = matches!(request, Ok(Request::Hello(_)));
        if !*greeted && !is_hello {
            return Err(Violation { close_code: 1008, reason: "the first message must be hello".into() });
        }
        let first = !std::mem::replace(greeted, true);
        self.requests.receive(id)?;
        let refusal = if size > self.limits.max_text_bytes {
            let limit = self.limits.max_text_bytes;
            Some(Rejection::limit(Code::TOO_LARGE, "max_text_bytes", "bytes", limit, size))
        } else if is_hello && !first {
            Some(Rejection::new(Code::FAILED_PRECONDITION, "the session is open: hello comes first and once"))
        } else {
            self.requests.over(self.limits.max_requests)
        };
        match refusal.map_or(request, Err) {
            Ok(request) => Ok(Received::Request { id, scope, request }),
            Err(rejection) => {
                self.respond(id, &Response::Rejected(rejection));
                Ok(Received::Nothing)
            }
        }
    }

    /// Takes one binary message.
    pub fn receive_binary(&mut self, mut message: Bytes) -> Result<Received, Violation> {
        let header = Header::decode(&message).map_err(|error| Violation::protocol(error.to_string()))?;
        let (size, limit) = (message.len() as u64, self.limits.max_binary_bytes);
        if size > limit * 2 {
            let reason = format!("binary message of {size} bytes, limit is {limit}");
            return Err(Violation { close_code: 1009, reason });
        }
        if matches!(self.role, Role::Server { greeted: false }) {
            return Err(Violation { close_code: 1008, reason: "the first message must be hello".into() });
        }
        if self.opened.is_none_or(|opened| header.stream > opened) {
            return Err(Violation::protocol(format!("stream {} was never opened", header.stream)));
        }
        if size > limit {
            return Ok(self.refuse_oversize(header.stream, size, limit));
        }
        let payload = message.split_off(HEADER_BYTES);
        match self.receiving.accept(header, payload)? {
            Some((offset, payload)) => {
                Ok(Received::Data { stream: header.stream, offset, payload, fin: header.fin })
            }
            None => Ok(Received::Nothing),
        }
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

    fn receive_seq(&mut self, seq: u64) -> Result<(), Violation> {
        if seq <= self.seq_received {
            return Err(Violation::protocol(format!("seq {seq} follows {}", self.seq_received)));
        }
        self.seq_received = seq;
        Ok(())
    }
}
