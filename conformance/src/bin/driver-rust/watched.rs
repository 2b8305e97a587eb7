//! A spawned process whose outputs are collected from its start.

use agentvm_conformance::scenario::action::Stream;
use agentvm_sdk::{AgentOs, ByteStream, Output, OutputFrom, OutputStream, Overflow, StreamLost};
use anyhow::{Context as _, Result};
use tokio::{sync::watch, task::JoinSet};

/// The process and both its outputs.
pub(crate) struct Watched {
    pid: u32,
    stdout: watch::Receiver<Collected>,
    stderr: watch::Receiver<Collected>,
    _readers: JoinSet<()>,
}

/// An output as far as it has come.
#[derive(Default)]
struct Collected {
    bytes: Vec<u8>,
    ended: Option<Result<(), StreamLost>>,
}

impl Watched {
    pub(crate) fn new(vm: &AgentOs, pid: u32) -> Result<Self> {
        let mut readers = JoinSet::new();
        let mut collect = |which| -> Result<_> {
            let stream = vm.on_process_output_from(pid, which, OutputFrom::Start, Overflow::Wait)?;
            let (sender, receiver) = watch::channel(Collected::default());
            readers.spawn(read(stream, sender));
            Ok(receiver)
        };
        let (stdout, stderr) = (collect(OutputStream::Stdout)?, collect(OutputStream::Stderr)?);
        Ok(Self { pid, stdout, stderr, _readers: readers })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// What has come so far.
    pub(crate) fn so_far(&self, stream: Stream) -> Vec<u8> {
        self.output(stream).borrow().bytes.clone()
    }

    /// Everything up to a text, once it has come; without one, everything up to the end.
    pub(crate) async fn collected(&self, stream: Stream, until: Option<&str>) -> Result<Vec<u8>> {
        let upto = |bytes: &[u8]| until.and_then(|text| end_of(bytes, text.as_bytes()));
        let mut output = self.output(stream).clone();
        let collected = output
            .wait_for(|collected| collected.ended.is_some() || upto(&collected.bytes).is_some())
            .await
            .context("the reader of an output is gone")?;
        match (upto(&collected.bytes), collected.ended) {
            (Some(end), _) => Ok(collected.bytes[..end].to_vec()),
            (None, Some(Err(lost))) => Err(lost.into()),
            (None, _) => Ok(collected.bytes.clone()),
        }
    }

    fn output(&self, stream: Stream) -> &watch::Receiver<Collected> {
        match stream {
            Stream::Stdout => &self.stdout,
            Stream::Stderr => &self.stderr,
        }
    }
}

async fn read(mut stream: ByteStream, sender: watch::Sender<Collected>) {
    let mut ended = Ok(());
    while let Some(output) = stream.next().await {
        match output {
            Ok(Output::Data(bytes)) => {
                sender.send_modify(|collected| collected.bytes.extend_from_slice(&bytes));
            }
            // A waiting subscriber meets no gap.
            Ok(Output::Gap { .. }) => {}
            Err(lost) => ended = Err(lost),
        }
    }
    sender.send_modify(|collected| collected.ended = Some(ended));
}

/// Where the first occurrence of a text ends.
fn end_of(bytes: &[u8], text: &[u8]) -> Option<usize> {
    let at = bytes.windows(text.len().max(1)).position(|window| window == text)?;
    Some(at + text.len())
}
