//! The scripted peer: a sidecar that runs nothing and says only what the test tells it to.
//!
//! It writes raw messages of the protocol, not through the connection core, so that it may also say what the core
//! would refuse to.

use std::{
    collections::{HashMap, VecDeque},
    fmt,
    sync::{Arc, Mutex},
};

use agentvm_sdk::wire::{
    error::{Code, Rejection},
    id::{RequestId, StreamId, VmId},
    message::{self, Envelope, Event, Request, Response, Scope},
    process::{ProcessRow, ProcessSnapshot, ProcessTable},
    session::{BUILD, Limits, PROTOCOL, Peer as Build, SUBPROTOCOL, Welcome},
    stdio::{HEADER_BYTES, Header},
    vm::{GuestIdentity, Isolation, IsolationReport, Namespaces, SeccompReport, VmCreated, VmDisposed},
};
use bytes::Bytes;
use futures_util::{SinkExt as _, StreamExt as _};
use tokio::{io::DuplexStream, sync::oneshot};
use tokio_tungstenite::{
    WebSocketStream, accept_hdr_async,
    tungstenite::{
        Message,
        handshake::server::{ErrorResponse, Request as Upgrade, Response as Upgraded},
        protocol::{CloseFrame, frame::coding::CloseCode},
    },
};

/// What the client was heard to say. Credit is noted on the side: see [`Peer::hears_credit`].
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "a few per scene, and patterns read better without boxes")]
pub(crate) enum Heard {
    Request { id: RequestId, scope: Scope, request: Request },
    Data { stream: StreamId, offset: u64, bytes: Bytes, fin: bool },
    Stop(StreamId),
    Reset(StreamId),
    Closed(Option<u16>),
}

pub(crate) struct Peer {
    waiting: Option<DuplexStream>,
    left: oneshot::Receiver<()>,
    socket: Option<WebSocketStream<DuplexStream>>,
    /// The VM it opened.
    pub(crate) vm: VmId,
    seq: u64,
    /// Up to where each output was sent.
    pub(crate) sent: HashMap<StreamId, u64>,
    pub(crate) granted: HashMap<StreamId, u64>,
    /// Heard while it listened for credit.
    pending: VecDeque<Heard>,
    dialogue: Dialogue,
}

impl Peer {
    pub(crate) fn new(stream: DuplexStream, left: oneshot::Receiver<()>) -> Self {
        Self {
            waiting: Some(stream),
            left,
            socket: None,
            vm: VmId::random(),
            seq: 0,
            sent: HashMap::new(),
            granted: HashMap::new(),
            pending: VecDeque::new(),
            dialogue: Dialogue::default(),
        }
    }

    pub(crate) fn dialogue(&self) -> Dialogue {
        self.dialogue.clone()
    }

    // ---- opening ----

    /// From the handshake to the VM.
    pub(crate) async fn opens(&mut self) {
        self.welcomes(BUILD).await;
        self.opens_vm(self.vm).await;
    }

    /// The handshake and `hello`, as a sidecar of some build.
    pub(crate) async fn welcomes(&mut self, build: &str) {
        let id = self.hears_hello().await;
        self.answer(id, &Response::Welcome(welcome(build))).await;
    }

    /// The handshake; returns the id of `hello`.
    pub(crate) async fn hears_hello(&mut self) -> RequestId {
        let stream = self.waiting.take().expect("one handshake per scene");
        self.socket =
            Some(accept_hdr_async(stream, choose_subprotocol).await.expect("a WebSocket handshake"));
        let (id, _, Request::Hello(_)) = self.request().await else { panic!("hello comes first") };
        id
    }

    /// Answers `create_vm`.
    pub(crate) async fn opens_vm(&mut self, vm: VmId) {
        let id = self.hears_create().await;
        self.answer(id, &vm_created(vm)).await;
    }

    pub(crate) async fn hears_create(&mut self) -> RequestId {
        let (id, Scope::SESSION, Request::CreateVm(_)) = self.request().await else {
            panic!("expected create_vm")
        };
        id
    }

    /// Hears `dispose_vm` of its VM; returns the id to answer.
    pub(crate) async fn hears_dispose(&mut self) -> RequestId {
        let (id, scope, Request::DisposeVm(_)) = self.request().await else { panic!("expected dispose_vm") };
        assert_eq!(scope, Scope::vm(self.vm));
        id
    }

    pub(crate) async fn disposes(&mut self) {
        let id = self.hears_dispose().await;
        self.answer(id, &Response::VmDisposed(VmDisposed {})).await;
    }

    // ---- listening ----

    /// The next thing the client says, credit aside.
    pub(crate) async fn hears(&mut self) -> Heard {
        loop {
            if let Some(heard) = self.pending.pop_front() {
                return heard;
            }
            self.listen().await;
        }
    }

    /// Listens until a stream's sender may go up to `limit`; what else is said meanwhile is kept.
    pub(crate) async fn hears_credit(&mut self, stream: StreamId, limit: u64) {
        while self.granted(stream) < limit {
            self.listen().await;
        }
    }

    /// All that was heard was also asked about.
    pub(crate) fn heard_nothing_else(&self) {
        assert!(self.pending.is_empty(), "the client also said {:?}", self.pending);
    }

    /// Up to where a stream may be sent, as far as the client was heard.
    pub(crate) fn granted(&self, stream: StreamId) -> u64 {
        self.granted[&stream]
    }

    /// Hears `process_snapshot`, whatever else is said before it; that is kept.
    pub(crate) async fn hears_snapshot(&mut self) -> (RequestId, ProcessSnapshot) {
        loop {
            for (at, heard) in self.pending.iter().enumerate() {
                if let Heard::Request { id, request: Request::ProcessSnapshot(body), .. } = heard {
                    let heard = (*id, *body);
                    self.pending.remove(at);
                    return heard;
                }
            }
            self.listen().await;
        }
    }

    /// Answers `process_snapshot` with these rows.
    pub(crate) async fn shows(&mut self, rows: Vec<ProcessRow>) {
        let (id, _) = self.hears_snapshot().await;
        self.answer(id, &Response::ProcessTable(ProcessTable { rows, next: None })).await;
    }

    /// The next request; what is said of streams before it is let pass.
    pub(crate) async fn request(&mut self) -> (RequestId, Scope, Request) {
        loop {
            match self.hears().await {
                Heard::Request { id, scope, request } => return (id, scope, request),
                Heard::Data { .. } | Heard::Reset(_) | Heard::Stop(_) => {}
                closed @ Heard::Closed(_) => panic!("{closed:?} after:\n{}", self.dialogue),
            }
        }
    }

    /// Whatever the client still says, until it has closed the connection.
    pub(crate) async fn hears_the_end(&mut self) {
        while self.socket.is_some() {
            self.listen().await;
        }
    }

    /// Reads nothing at all until the client has let go of the connection.
    pub(crate) async fn is_left(&mut self) {
        (&mut self.left).await.expect_err("nothing is ever sent");
        self.socket = None;
    }

    async fn listen(&mut self) {
        let socket = self.socket.as_mut().expect("nothing follows the end of the connection");
        let heard = match socket.next().await {
            Some(Ok(Message::Text(text))) => self.understand(&text),
            Some(Ok(Message::Binary(bytes))) => Some(data(&bytes)),
            Some(Ok(Message::Close(frame))) => {
                self.socket = None;
                Some(Heard::Closed(frame.map(|frame| frame.code.into())))
            }
            Some(Ok(_)) => None,
            Some(Err(_)) | None => {
                self.socket = None;
                Some(Heard::Closed(None))
            }
        };
        if let Some(heard) = heard {
            self.dialogue.note("client", &heard);
            self.pending.push_back(heard);
        }
    }

    fn understand(&mut self, text: &str) -> Option<Heard> {
        match message::decode(text).expect("the client speaks the protocol") {
            Envelope::Request { id, scope, request } => {
                Some(Heard::Request { id, scope, request: request.expect("a request that can be read") })
            }
            Envelope::Credit { stream, limit, .. } => {
                assert!(limit > self.granted(stream), "credit rises");
                self.granted.insert(stream, limit);
                None
            }
            Envelope::Stop { stream, .. } => Some(Heard::Stop(stream)),
            Envelope::Reset { stream, .. } => Some(Heard::Reset(stream)),
            other => panic!("no client says {other:?}"),
        }
    }

    // ---- speaking ----

    pub(crate) async fn answer(&mut self, id: RequestId, response: &Response) {
        self.seq += 1;
        self.text(message::encode_response(self.seq, id, response)).await;
    }

    pub(crate) async fn rejects(&mut self, id: RequestId, rejection: Rejection) {
        self.answer(id, &Response::Rejected(rejection)).await;
    }

    /// An event in the scope of its own VM.
    pub(crate) async fn event(&mut self, event: Event) {
        self.event_in(Scope::vm(self.vm), event).await;
    }

    pub(crate) async fn event_in(&mut self, scope: Scope, event: Event) {
        self.seq += 1;
        self.text(message::encode_event(self.seq, scope, &event)).await;
    }

    /// An event of a later version.
    pub(crate) async fn unknown_event(&mut self) {
        self.seq += 1;
        let seq = self.seq;
        self.text(format!(r#"{{"kind":"event","seq":{seq},"type":"weather","body":{{"rain":true}}}}"#)).await;
    }

    /// Lets the client send up to `limit`.
    pub(crate) async fn grants(&mut self, stream: StreamId, received: u64, limit: u64) {
        self.text(message::encode_credit(stream, received, limit)).await;
    }

    pub(crate) async fn resets(&mut self, stream: StreamId) {
        self.text(message::encode_reset(stream, &Code::EIO, "the pipe broke")).await;
    }

    pub(crate) async fn stops(&mut self, stream: StreamId) {
        self.text(message::encode_stop(stream, &Code::EPIPE)).await;
    }

    /// A frame, whatever its offset.
    pub(crate) async fn frame(&mut self, header: Header, payload: &[u8]) {
        self.send(Message::Binary([&header.encode(), payload].concat().into())).await;
    }

    pub(crate) async fn text(&mut self, text: String) {
        self.send(Message::text(text)).await;
    }

    /// Ends the connection with a close frame.
    pub(crate) async fn closes(&mut self, code: u16, reason: &str) {
        let frame = CloseFrame { code: CloseCode::from(code), reason: reason.into() };
        self.send(Message::Close(Some(frame))).await;
    }

    /// Is gone without a word.
    pub(crate) fn dies(&mut self) {
        self.dialogue.note("peer", &"dies");
        self.socket = None;
    }

    async fn send(&mut self, message: Message) {
        match &message {
            Message::Text(text) => self.dialogue.note("peer", &text.as_str()),
            Message::Binary(bytes) => self.dialogue.note("peer", &data(bytes)),
            other => self.dialogue.note("peer", other),
        }
        let socket = self.socket.as_mut().expect("the connection is open");
        // A client that has gone meanwhile is seen by whoever listens.
        let _ = socket.send(message).await;
    }
}

#[expect(clippy::result_large_err, clippy::unnecessary_wraps, reason = "the signature is tungstenite's")]
fn choose_subprotocol(_: &Upgrade, mut response: Upgraded) -> Result<Upgraded, ErrorResponse> {
    response.headers_mut().insert("Sec-WebSocket-Protocol", SUBPROTOCOL.parse().unwrap());
    Ok(response)
}

fn data(message: &Bytes) -> Heard {
    let Header { stream, offset, fin } = Header::decode(message).expect("a frame");
    Heard::Data { stream, offset, bytes: message.slice(HEADER_BYTES..), fin }
}

fn welcome(build: &str) -> Welcome {
    Welcome {
        protocol: PROTOCOL,
        sidecar: Build {
            name: "scripted".to_owned(),
            version: "0".to_owned(),
            build: Some(build.to_owned()),
        },
        os: "linux".to_owned(),
        arch: "x86_64".to_owned(),
        session: "scene".to_owned(),
        grace_ms: 0,
        limits: Limits::default(),
        features: Vec::new(),
    }
}

pub(crate) fn vm_created(vm: VmId) -> Response {
    let inode = || "1".to_owned();
    let isolation = IsolationReport {
        isolation: Isolation::Sandbox,
        hostname: "scene".to_owned(),
        namespaces: Some(Namespaces {
            user: inode(),
            pid: inode(),
            mnt: inode(),
            net: inode(),
            uts: inode(),
            ipc: inode(),
            cgroup: inode(),
        }),
        uid_map: Vec::new(),
        gid_map: Vec::new(),
        guest: GuestIdentity {
            uid: 1000,
            gid: 1000,
            home: "/home/agentos".to_owned(),
            capabilities: Vec::new(),
        },
        no_new_privs: true,
        seccomp: SeccompReport { mode: 2, filters: None },
        landlock: None,
        limits: Vec::new(),
        partial: Vec::new(),
    };
    Response::VmCreated(VmCreated { vm, isolation, boot_us: 1 })
}

/// What was said so far; the last of it tells where a scene hangs.
#[derive(Debug, Clone, Default)]
pub(crate) struct Dialogue(Arc<Mutex<VecDeque<String>>>);

impl Dialogue {
    const LINES: usize = 24;

    fn note(&self, who: &str, what: &impl fmt::Debug) {
        let line = format!("{who}: {what:?}").chars().take(200).collect();
        let mut lines = self.0.lock().unwrap();
        if lines.len() == Self::LINES {
            lines.pop_front();
        }
        lines.push_back(line);
    }
}

impl fmt::Display for Dialogue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.lock().unwrap().iter().try_for_each(|line| writeln!(f, "  {line}"))
    }
}
