//! Two ends and the two directions of the socket between them.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::{
    connection::{Connection, Received, Violation},
    id::{RequestId, StreamId, VmId},
    message::{Request, Response, Scope},
    session::{Hello, Limits, PROTOCOL, Peer, Welcome},
    stdio::Header,
    vm::ListVms,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Client,
    Server,
}

impl End {
    pub(super) fn peer(self) -> End {
        match self {
            End::Client => End::Server,
            End::Server => End::Client,
        }
    }
}

/// A WebSocket message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Message {
    Text(String),
    Binary(Bytes),
}

/// Client, sidecar, and what is on its way to each of them.
#[derive(Debug)]
pub(super) struct Pair {
    pub(super) client: Connection,
    pub(super) server: Connection,
    pub(super) to_client: VecDeque<Message>,
    pub(super) to_server: VecDeque<Message>,
}

impl Pair {
    /// Nothing was said yet.
    pub(super) fn silent(limits: Limits) -> Self {
        Self {
            client: Connection::client(limits),
            server: Connection::server(limits),
            to_client: VecDeque::new(),
            to_server: VecDeque::new(),
        }
    }

    /// `hello` and `welcome` are exchanged.
    pub(super) fn with(limits: Limits) -> Self {
        let mut pair = Self::silent(limits);
        let id = pair.client.request(Scope::SESSION, &hello()).unwrap();
        pair.exchange();
        pair.server.respond(id, &welcome(limits));
        pair.exchange();
        pair
    }

    pub(super) fn new() -> Self {
        Self::with(Limits::default())
    }

    pub(super) fn with_window(window_bytes: u64) -> Self {
        Self::with(Limits { window_bytes, ..Limits::default() })
    }

    pub(super) fn end(&mut self, end: End) -> &mut Connection {
        match end {
            End::Client => &mut self.client,
            End::Server => &mut self.server,
        }
    }

    pub(super) fn wire_to(&mut self, end: End) -> &mut VecDeque<Message> {
        match end {
            End::Client => &mut self.to_client,
            End::Server => &mut self.to_server,
        }
    }

    /// Everything `end` has to say goes onto the wire.
    pub(super) fn send_control(&mut self, end: End) {
        while let Some(text) = self.end(end).next_control() {
            self.wire_to(end.peer()).push_back(Message::Text(text));
        }
    }

    /// `end` takes the next message off the wire, if there is one.
    pub(super) fn deliver(&mut self, end: End) -> Option<Result<Received, Violation>> {
        let message = self.wire_to(end).pop_front()?;
        Some(match message {
            Message::Text(text) => self.end(end).receive_text(&text),
            Message::Binary(bytes) => self.end(end).receive_binary(bytes),
        })
    }

    /// `end` takes everything off the wire; none of it may be a violation.
    pub(super) fn deliver_all(&mut self, end: End) -> Vec<Received> {
        std::iter::from_fn(|| self.deliver(end))
            .map(|received| received.expect("the peer keeps the rules"))
            .filter(|received| *received != Received::Nothing)
            .collect()
    }

    /// Both ends say what they have to say and hear what was said; what the client, then the sidecar was told.
    pub(super) fn exchange(&mut self) -> (Vec<Received>, Vec<Received>) {
        self.send_control(End::Client);
        self.send_control(End::Server);
        let server = self.deliver_all(End::Server);
        (self.deliver_all(End::Client), server)
    }

    /// A stream from `sender` to its peer, opened at both ends.
    pub(super) fn open(&mut self, sender: End) -> StreamId {
        self.open_in(sender, lane(0))
    }

    pub(super) fn open_in(&mut self, sender: End, lane: VmId) -> StreamId {
        self.open_as(sender, lane, None)
    }

    /// The same with a window of its own.
    pub(super) fn open_with(&mut self, sender: End, window: Option<u64>) -> StreamId {
        self.open_as(sender, lane(0), window)
    }

    fn open_as(&mut self, sender: End, lane: VmId, window: Option<u64>) -> StreamId {
        let stream = self.client.next_stream();
        self.server.open_stream(stream).unwrap();
        self.end(sender).open_send(stream, lane, window);
        self.end(sender.peer()).open_receive(stream, window);
        stream
    }

    /// `sender` sends as much of `bytes` as it may, and returns how much that was.
    pub(super) fn write(&mut self, sender: End, stream: StreamId, bytes: &[u8]) -> usize {
        let mut sent = 0;
        if !bytes.is_empty() {
            self.end(sender).ready(stream);
        }
        while let Some(turn) = self.end(sender).next_turn() {
            assert_eq!(turn.stream, stream, "only one stream is ready in this test");
            let len = turn.max_bytes.min(bytes.len() - sent);
            let more = sent + len < bytes.len();
            let header = self.end(sender).frame(stream, len, false, more).unwrap();
            self.wire_to(sender.peer()).push_back(frame(header, &bytes[sent..sent + len]));
            sent += len;
        }
        sent
    }

    /// `sender` ends a stream.
    pub(super) fn finish(&mut self, sender: End, stream: StreamId) {
        if let Some(header) = self.end(sender).frame(stream, 0, true, false) {
            self.wire_to(sender.peer()).push_back(frame(header, &[]));
        }
    }
}

/// A binary message.
pub(super) fn frame(header: Header, payload: &[u8]) -> Message {
    Message::Binary([&header.encode()[..], payload].concat().into())
}

/// A binary message that no sender with our core would have sent.
pub(super) fn forged(stream: StreamId, offset: u64, payload: &[u8], fin: bool) -> Message {
    frame(Header { stream, offset, fin }, payload)
}

/// What a receiver is told of `payload`.
pub(super) fn data(stream: StreamId, offset: u64, payload: &[u8], fin: bool) -> Received {
    Received::Data { stream, offset, payload: Bytes::copy_from_slice(payload), fin }
}

pub(super) fn lane(number: u128) -> VmId {
    VmId(uuid::Uuid::from_u128(number))
}

pub(super) fn hello() -> Request {
    let client = Peer { name: "client".into(), version: "0".into(), build: None };
    Request::Hello(Hello { protocol_min: PROTOCOL, protocol_max: PROTOCOL, client, token: None })
}

pub(super) fn welcome(limits: Limits) -> Response {
    Response::Welcome(Welcome {
        protocol: PROTOCOL,
        sidecar: Peer { name: "sidecar".into(), version: "0".into(), build: None },
        os: "linux".into(),
        arch: "x86_64".into(),
        session: "s".into(),
        grace_ms: 0,
        limits,
        features: Vec::new(),
    })
}

pub(super) fn list_vms() -> Request {
    Request::ListVms(ListVms {})
}

/// A text message that no client with our core would have sent.
pub(super) fn list_vms_as(id: RequestId) -> String {
    crate::message::encode_request(id, Scope::SESSION, &list_vms())
}
