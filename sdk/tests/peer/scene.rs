//! One test: a client, the scripted peer that stands in for its sidecar, and a deadline for the two.

use std::{
    future::Future,
    sync::{Arc, Mutex},
    time::Duration,
};

use agentvm_sdk::{AgentOs, AgentOsConfig, Duplex, ProcessLimits, SidecarConfig, Transport};
use tokio::{io::DuplexStream, join, time::timeout};

use crate::sidecar::Peer;

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
    stage(async |config, peer| {
        let (vm, ()) = join!(AgentOs::create(config.process_limits(limits)), peer.opens());
        story(vm.expect("the peer opened it"), peer).await;
    });
}

/// A peer that nobody has connected to yet.
pub(crate) fn stage(story: impl AsyncFnOnce(AgentOsConfig, &mut Peer)) {
    let (ours, theirs) = tokio::io::duplex(SOCKET_BYTES);
    let mut peer = Peer::new(theirs);
    let dialogue = peer.dialogue();
    let play = async {
        let config = AgentOsConfig::new().sidecar(SidecarConfig::Custom(Arc::new(Wire::new(ours))));
        story(config, &mut peer).await;
        peer.hears_the_end().await;
    };
    run(async {
        if timeout(DEADLINE, play).await.is_err() {
            panic!("the scene hangs after:\n{dialogue}");
        }
    });
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

/// The client's end of the stream, for the one connection it makes.
#[derive(Debug)]
struct Wire(Mutex<Option<DuplexStream>>);

impl Wire {
    fn new(stream: DuplexStream) -> Self {
        Self(Mutex::new(Some(stream)))
    }
}

#[async_trait::async_trait]
impl Transport for Wire {
    async fn connect(&self) -> std::io::Result<Box<dyn Duplex>> {
        let stream = self.0.lock().unwrap().take().expect("one connection per scene");
        Ok(Box::new(stream))
    }
}
