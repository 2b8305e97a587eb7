//! One test: a client, the scripted peer that stands in for its sidecar, and a deadline for the two.

use std::{
    future::Future,
    io,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll},
    time::Duration,
};

use agentvm_sdk::{
    AgentOs, AgentOsConfig, Duplex, Process, ProcessLimits, SidecarConfig, SpawnOptions, Transport,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf},
    join,
    sync::oneshot,
    time::timeout,
};

use crate::{NONE, guest::Guest, sidecar::Peer};

/// How long a whole scene may take. Nothing in one waits for time to pass: to get here is to hang.
const DEADLINE: Duration = Duration::from_secs(20);

/// Bytes that may be on the way in one direction.
const SOCKET_BYTES: usize = 64 << 10;

/// A VM and the peer behind it; at the end the client must have closed the connection.
pub(crate) fn scene(story: impl AsyncFnOnce(AgentOs, &mut Peer)) {
    scene_with(ProcessLimits::default(), story);
}

/// The same with limits of its own.
pub(crate) fn scene_with(limits: ProcessLimits, story: impl AsyncFnOnce(AgentOs, &mut Peer)) {
    stage(async |sidecar, peer| {
        let config = AgentOsConfig::new().sidecar(sidecar).process_limits(limits);
        let (vm, ()) = join!(AgentOs::create(config), peer.opens());
        story(vm.expect("the peer opened it"), peer).await;
    });
}

/// A peer that nobody has connected to yet.
pub(crate) fn stage(story: impl AsyncFnOnce(SidecarConfig, &mut Peer)) {
    let (ours, theirs) = tokio::io::duplex(SOCKET_BYTES);
    let (held, left) = oneshot::channel();
    let mut peer = Peer::new(theirs, left);
    let dialogue = peer.dialogue();
    let play = async {
        let wire = Wire(Mutex::new(Some(OurEnd { stream: ours, _held: held })));
        story(SidecarConfig::Custom(Arc::new(wire)), &mut peer).await;
        peer.hears_the_end().await;
    };
    run(async {
        assert!(timeout(DEADLINE, play).await.is_ok(), "the scene hangs after:\n{dialogue}");
    });
}

/// A process that runs, on both sides.
pub(crate) async fn started(vm: &AgentOs, peer: &mut Peer) -> (Process, Guest) {
    let process = vm.spawn("worker", NONE, SpawnOptions::new()).expect("the VM lives");
    (process, peer.starts().await)
}

/// The client has acted on everything the peer said so far: an answer is read behind it.
pub(crate) async fn caught_up(vm: &AgentOs, peer: &mut Peer) {
    let (rows, ()) = join!(vm.all_processes(), peer.shows(Vec::new()));
    rows.expect("the VM lives");
}

fn run(future: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    runtime.expect("a runtime for the test").block_on(future);
}

/// The one connection a scene has.
#[derive(Debug)]
struct Wire(Mutex<Option<OurEnd>>);

#[async_trait::async_trait]
impl Transport for Wire {
    async fn connect(&self) -> io::Result<Box<dyn Duplex>> {
        let ours = self.0.lock().unwrap().take().expect("one connection per scene");
        Ok(Box::new(ours))
    }
}

/// The client's end of it; the peer can tell when it was dropped, without reading.
#[derive(Debug)]
struct OurEnd {
    stream: DuplexStream,
    _held: oneshot::Sender<()>,
}

impl AsyncRead for OurEnd {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for OurEnd {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
