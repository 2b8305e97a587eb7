//! What a slow link and a broken one do to results: nothing, and never a success.

use std::{path::PathBuf, time::Duration};

use agentvm_sdk::{
    AgentOs, AgentOsConfig, ClientError, ExecOptions, Output, OutputFrom, OutputStream, Overflow,
    SidecarConfig, SpawnOptions,
};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::{UnixListener, UnixStream},
    task::JoinSet,
};

use crate::{
    serve::{Server, TOKEN},
    support::{all_gone, out, tree, within},
};

/// A link to a sidecar that carries what it says at a rate of its own, until it is cut.
struct SlowLink {
    server: Server,
    path: PathBuf,
    carrying: JoinSet<()>,
}

impl SlowLink {
    async fn to_sidecar(name: &str, bytes_per_ms: usize) -> Self {
        let server = Server::start(name).await;
        let path = server.socket().with_file_name("slow");
        let listener = UnixListener::bind(&path).unwrap();
        let behind = server.socket();
        let mut carrying = JoinSet::new();
        carrying.spawn(async move {
            let (client, _) = listener.accept().await.unwrap();
            let (from_client, to_client) = client.into_split();
            let (from_sidecar, to_sidecar) = UnixStream::connect(behind).await.unwrap().into_split();
            tokio::join!(
                carry(from_client, to_sidecar, usize::MAX),
                carry(from_sidecar, to_client, bytes_per_ms)
            );
        });
        Self { server, path, carrying }
    }

    async fn vm(&self) -> AgentOs {
        let url = format!("unix:{}", self.path.display());
        let config = AgentOsConfig::new().sidecar(SidecarConfig::Remote { url, token: TOKEN.into() });
        within(AgentOs::create(config)).await.unwrap()
    }

    /// Both ends find the connection closed, without a word.
    async fn cut(&mut self) {
        self.carrying.shutdown().await;
    }
}

async fn carry(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin, bytes_per_ms: usize) {
    let mut buffer = vec![0; bytes_per_ms.min(64 << 10)];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        if to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
        if bytes_per_ms < usize::MAX {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

#[tokio::test]
async fn c01_over_a_slow_link_no_output_is_lost_and_no_exit_comes_before_it() {
    let link = SlowLink::to_sidecar("slow", 4096).await;
    let vm = link.vm().await;
    for _ in 0..3 {
        let result = within(vm.exec("seq 1 90000", ExecOptions::new())).await.unwrap();
        assert_eq!((result.exit_code, result.stdout.len()), (0, 528_894));
        assert!(result.stdout.ends_with("\n90000\n"));
    }
    // The same for a consumer that takes its time.
    let mut seen = Vec::new();
    let process = vm.spawn("seq", ["1", "20000"], SpawnOptions::new()).unwrap();
    let mut stream = process.output_from(OutputStream::Stdout, OutputFrom::Start, Overflow::Wait);
    while let Some(output) = within(stream.next()).await {
        let Output::Data(bytes) = output.unwrap() else { panic!("nothing is dropped") };
        seen.extend_from_slice(&bytes);
        tokio::task::yield_now().await;
    }
    assert_eq!(seen.len(), 108_894);
    assert!(seen.ends_with(b"\n20000\n"));
    assert_eq!(within(process.wait()).await.unwrap().code, 0);
}

#[tokio::test]
async fn c08_a_cut_link_is_an_error_for_every_call_and_never_a_success() {
    let mut link = SlowLink::to_sidecar("cut", usize::MAX).await;
    let vm = link.vm().await;
    let (sender, mut lines) = tokio::sync::mpsc::unbounded_channel();
    let options = ExecOptions::new().on_stdout(move |bytes| drop(sender.send(bytes.to_vec())));
    let process = vm.spawn("sh", ["-c", "echo up; sleep 600"], SpawnOptions::new()).unwrap();
    let command = vm.exec("for i in 1 2 3; do echo $i; done; sleep 600", options);
    let cutting = async {
        let mut text = Vec::new();
        while !text.ends_with(b"3\n") {
            text.extend(within(lines.recv()).await.unwrap());
        }
        link.cut().await;
    };
    let (result, waited, ()) = within(async { tokio::join!(command, process.wait(), cutting) }).await;
    for error in [result.unwrap_err(), waited.unwrap_err()] {
        assert!(matches!(error, ClientError::Disconnected { .. }), "{error:?}");
    }
    let later = within(vm.exec("true", ExecOptions::new())).await.unwrap_err();
    assert!(matches!(later, ClientError::Disconnected { .. }), "{later:?}");
    assert_eq!(vm.get_process(process.pid()).unwrap().exit_code, None);
}

#[tokio::test]
async fn c46_what_a_vanished_client_ran_is_gone_and_another_client_notices_nothing() {
    let mut link = SlowLink::to_sidecar("vanished", usize::MAX).await;
    let other = link.server.vm().await;
    let before = tree(link.server.pid());
    let vm = link.vm().await;
    let process = vm.spawn("sleep", ["600"], SpawnOptions::new()).unwrap();
    out(&vm, "sleep 600 >/dev/null 2>&1 &").await;
    let mut of_client = tree(link.server.pid());
    of_client.retain(|pid| !before.contains(pid));
    assert!(of_client.len() >= 3, "init and two sleeps: {of_client:?}");
    link.cut().await;
    all_gone(&of_client, Duration::from_secs(5)).await;
    assert!(matches!(within(process.wait()).await, Err(ClientError::Disconnected { .. })));
    assert_eq!(out(&other, "echo here").await, "here\n");
    assert_eq!(out(&link.server.vm().await, "echo new").await, "new\n");
}
