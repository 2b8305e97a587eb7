//! What the examples share: where a guest's output goes, and how a program ends when that can no longer be written.

pub mod forest;

use std::{io, process::ExitCode};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// 128 + SIGPIPE: how a shell reports a program whose reader has gone away.
const READER_GONE: u8 = 141;

/// This program's own output, for callbacks to write to. The first failure to write is the program's end.
pub struct Terminal {
    failed: UnboundedSender<io::Error>,
    failure: UnboundedReceiver<io::Error>,
}

impl Default for Terminal {
    fn default() -> Self {
        let (failed, failure) = unbounded_channel();
        Self { failed, failure }
    }
}

impl Terminal {
    /// Writes to standard output.
    pub fn stdout(&self) -> impl FnMut(&[u8]) + Send + use<> {
        self.writer(io::stdout())
    }

    /// Writes to standard error.
    pub fn stderr(&self) -> impl FnMut(&[u8]) + Send + use<> {
        self.writer(io::stderr())
    }

    fn writer<W: io::Write + Send>(&self, mut output: W) -> impl FnMut(&[u8]) + Send + use<W> {
        let failed = self.failed.clone();
        move |bytes| {
            if let Err(error) = output.write_all(bytes).and_then(|()| output.flush()) {
                // Whoever no longer looks has ended for another reason.
                let _ = failed.send(error);
            }
        }
    }

    /// Runs something that writes here, until it ends or its output can no longer be written.
    pub async fn run<T>(&mut self, work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
        let done = tokio::select! {
            Some(error) = self.failure.recv() => return Err(error.into()),
            done = work => done,
        };
        match self.failure.try_recv() {
            Ok(error) => Err(error.into()),
            Err(_) => done,
        }
    }
}

/// How a program ends: one whose reader has gone away says nothing, and has a code of its own.
pub fn end(result: anyhow::Result<ExitCode>) -> anyhow::Result<ExitCode> {
    result.or_else(|error| match error.downcast_ref::<io::Error>() {
        Some(cause) if cause.kind() == io::ErrorKind::BrokenPipe => Ok(ExitCode::from(READER_GONE)),
        _ => Err(error),
    })
}
