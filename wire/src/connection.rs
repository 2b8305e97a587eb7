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
//! is closed is discarded; data for a stream never opened, a hole, or data beyond credit is a [`Violation`]. A request
//! gets one answer, and whoever made it is told one.
//!
//! A driver opens the streams of a request before it takes the next message, or answers the request with `rejected`:
//! their data may be right behind it.

mod incoming;
mod receive;
mod requests;
mod send;
#[cfg(test)]
mod tests;
mod window;

use std::collections::VecDeque;

use crate::{
    error::{Code, Rejection},
    id::{RequestId, StreamId, VmId},
    message::{self, Event, Request, Response, Scope},
    session::Limits,
    stdio::{CHUNK_BYTES, HEADER_BYTES, Header},
};

pub use incoming::{Received, Violation};
pub use send::Turn;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Client,
    Server(Stage),
}

/// How far a client has come: nothing is answered to one that was not welcomed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// `hello` is awaited, for the first time or after one was rejected.
    Silent,
    /// This `hello` is not answered yet.
    Greeting(RequestId),
    /// `welcome` was said.
    Open,
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
    /// The highest stream id in use so far.
    opened: Option<StreamId>,
    /// A request was rejected since the last stream was opened. Its streams may never have been noted (its body may
    /// not even have been readable), yet their data may be on its way: ids above `opened` are discarded meanwhile.
    refused: bool,
    seq_sent: u64,
    seq_received: u64,
}

impl Connection {
    /// The end that asks.
    pub fn client(limits: Limits) -> Self {
        Self::new(Role::Client, limits)
    }

    /// The end that answers; refuses everything but `hello` until it was told to answer `welcome`.
    pub fn server(limits: Limits) -> Self {
        Self::new(Role::Server(Stage::Silent), limits)
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
            refused: false,
            seq_sent: 0,
            seq_received: 0,
        }
    }

    /// Whether the session is open: for a server, once `hello` was answered with `welcome`.
    pub fn is_open(&self) -> bool {
        matches!(self.role, Role::Client | Role::Server(Stage::Open))
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

    /// Queues a request and returns its id; refused where too many already wait for their answer, or where it is
    /// larger than the peer takes (which could cost the connection).
    pub fn request(&mut self, scope: Scope, request: &Request) -> Result<RequestId, Rejection> {
        let id = self.requests.send(self.limits.max_requests)?;
        let text = message::encode_request(id, scope, request);
        if let Some(rejection) = self.text_too_large(text.len() as u64) {
            self.requests.close(id);
            return Err(rejection);
        }
        self.control.push_back(text);
        Ok(id)
    }

    /// The rejection due to a request of `size` bytes, if that is too large.
    fn text_too_large(&self, size: u64) -> Option<Rejection> {
        let limit = self.limits.max_text_bytes;
        (size > limit).then(|| Rejection::limit(Code::TOO_LARGE, "max_text_bytes", "bytes", limit, size))
    }

    /// Answers a request; a second answer to the same one is not sent.
    pub fn respond(&mut self, id: RequestId, response: &Response) {
        if self.requests.close(id) {
            if self.role == Role::Server(Stage::Greeting(id)) {
                let welcome = matches!(response, Response::Welcome(_));
                self.role = Role::Server(if welcome { Stage::Open } else { Stage::Silent });
            }
            self.refused |= matches!(response, Response::Rejected(_));
            self.seq_sent += 1;
            self.control.push_back(message::encode_response(self.seq_sent, id, response));
        }
    }

    /// Queues an event.
    pub fn event(&mut self, scope: Scope, event: &Event) {
        self.seq_sent += 1;
        self.control.push_back(message::encode_event(self.seq_sent, scope, event));
    }

    /// Says that nobody waits for an answer any more; the answer still comes, unless it already has.
    pub fn cancel(&mut self, id: RequestId) {
        if self.requests.is_open(id) {
            self.control.push_back(message::encode_cancel(id));
        }
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
    ///
    /// A session that has used up all 2^32 ids repeats the last, which the sidecar then refuses.
    pub fn next_stream(&mut self) -> StreamId {
        let id = StreamId(self.opened.map_or(1, |id| id.0.saturating_add(1)));
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
        self.refused = false;
        Ok(())
    }

    /// Begins sending on a stream; `lane` is the VM whose streams share one turn with it, `window` what its request said
    /// of that, if it did.
    pub fn open_send(&mut self, stream: StreamId, lane: VmId, window: Option<u64>) {
        self.sending.open(stream, lane, window.unwrap_or(self.limits.window_bytes));
    }

    /// Begins receiving on a stream; `window` as in [`Connection::open_send`].
    pub fn open_receive(&mut self, stream: StreamId, window: Option<u64>) {
        self.receiving.open(stream, window.unwrap_or(self.limits.window_bytes));
    }

    /// There are bytes, or the end, to send on a stream; it gets its turn when credit allows.
    pub fn ready(&mut self, stream: StreamId) {
        self.sending.ready(stream);
    }

    /// The stream whose turn it is, if any has something to send and credit to do so.
    pub fn next_turn(&mut self) -> Option<Turn> {
        let payload = self.limits.max_binary_bytes.saturating_sub(HEADER_BYTES as u64);
        self.sending.next_turn(payload.min(CHUNK_BYTES as u64))
    }

    /// The turn's stream had nothing to send after all.
    pub fn idle(&mut self, stream: StreamId) {
        self.sending.idle(stream);
    }

    /// The header for `len` bytes to send now on the stream whose turn it is; `more` keeps it ready.
    ///
    /// An empty frame with `fin` needs neither a turn nor credit: a stream may always end. `None` if the stream was
    /// closed meanwhile: the bytes are dropped.
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

    /// Forgets both directions of a stream without a word, where the request that opened it was rejected. Whether it
    /// was open.
    pub fn close_stream(&mut self, stream: StreamId) -> bool {
        self.sending.close(stream) | self.receiving.close(stream)
    }
}
