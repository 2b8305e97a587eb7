//! A spawned process whose outputs are collected from its start.

use std::sync::{Arc, Mutex, MutexGuard};

use agentvm_conformance::scenario::action::Stream;
use agentvm_sdk::{
    AgentOs, ByteStream, Output, OutputFrom, OutputStream, Overflow, SpawnOptions, StreamLost,
};
use anyhow::{Context as _, Result};
use tokio::{sync::watch, task::JoinSet};

/// The process and both its outputs.
pub(crate) struct Watched {
    pid: u32,
    /// What the callbacks were given: they are there before the start, and have returned before an exit is told.
    delivered: [Arc<Mutex<Vec<u8>>>; 2],
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
    pub(crate) fn spawn(
        vm: &AgentOs,
        command: &str,
        args: Vec<String>,
        options: SpawnOptions,
    ) -> Result<Self> {
        let delivered: [Arc<Mutex<Vec<u8>>>; 2] = Default::default();
        let [stdout, stderr] = delivered.clone();
        let options = options
            .on_stdout(move |bytes| lock(&stdout).extend_from_slice(bytes))
            .on_stderr(move |bytes| lock(&stderr).extend_from_slice(bytes));
        let pid = vm.spawn(command, args, options)?.pid();
        let mut readers = JoinSet::new();
        let mut collect = |which| -> Result<_> {
            let stream = vm.on_process_output_from(pid, which, OutputFrom::Start, Overflow::Wait)?;
            let (sender, receiver) = watch::channel(Collected::default());
            readers.spawn(read(stream, sender));
            Ok(receiver)
        };
        let (stdout, stderr) = (collect(OutputStream::Stdout)?, collect(OutputStream::Stderr)?);
        Ok(Self { pid, delivered, stdout, stderr, _readers: readers })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// What has come so far.
    pub(crate) fn so_far(&self, stream: Stream) -> Vec<u8> {
        let [stdout, stderr] = &self.delivered;
        lock(match stream {
            Stream::Stdout => stdout,
            Stream::Stderr => stderr,
        })
        .clone()
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

fn lock(bytes: &Mutex<Vec<u8>>) -> MutexGuard<'_, Vec<u8>> {
    bytes.lock().expect("no code panics under this lock")
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
