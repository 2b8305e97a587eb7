//! One run of a monitor: a process, read to its end and stopped when that is wanted.

use std::{sync::Arc, time::Duration};

use agentvm_wire::process::{ExitCause, SignalTarget};
use tokio::sync::Notify;

use super::{
    lifecycle::End,
    lines::{Line, Lines},
    plugin::Shared,
    spec::MonitorSpec,
    status::MonitorStream,
};
use crate::{
    error::ClientError,
    process::{ExitStatus, Process, SpawnOptions},
    stdio::{ByteStream, Output, StreamLost},
};

/// Carries out a run. When it returns, nothing of its tree is left.
pub(super) async fn run(shared: &Arc<Shared>, id: &str, run_id: u64, news: &Notify) -> End {
    let Some(spec) = shared.session().spec(id) else { return End::Abandoned };
    let vm = shared.context.vm();
    let (process, [stdout, stderr]) = match vm.spawn_read("/bin/sh", ["-c", &spec.command], options(&spec)) {
        Ok(spawned) => spawned,
        Err(error) => return not_run(&error),
    };
    let _kills = KillsWhenDropped(process.clone());
    shared.change(|session, _| session.spawned(id, run_id, process.pid()));
    let take = |stream, lines: &mut Vec<Line>| {
        if !lines.is_empty() {
            let now_ms = crate::now_ms();
            shared.session().lines(id, run_id, stream, lines.drain(..), now_ms);
            shared.context.changed();
        }
    };
    let max_line_bytes = usize::try_from(spec.max_line_bytes).unwrap_or(usize::MAX);
    let mut stdout = Reader::new(stdout, MonitorStream::Stdout, max_line_bytes);
    let mut stderr = Reader::new(stderr, MonitorStream::Stderr, max_line_bytes);
    let mut grace = None;
    let mut stopping = false;
    while stdout.open || stderr.open {
        tokio::select! {
            output = stdout.stream.next(), if stdout.open => stdout.take(output, take),
            output = stderr.stream.next(), if stderr.open => stderr.take(output, take),
            () = news.notified(), if !stopping => {
                stopping = shared.session().is_stopping(id, run_id);
                if stopping {
                    process.signal(spec.stop_signal, SignalTarget::Group);
                    let limit = Duration::from_millis(spec.stop_grace_ms);
                    grace = Some(Box::pin(shared.context.sleep(limit)));
                }
            }
            () = async { grace.as_mut().expect("there is one").await }, if grace.is_some() => {
                grace = None;
                process.kill();
            }
        }
        // A flood must not keep the task from being cancelled.
        tokio::task::yield_now().await;
    }
    let outcome = process.wait().await;
    // Where the VM is gone, so is the tree.
    let _ = process.end_tree(vm).await;
    end(outcome, &spec)
}

fn options(spec: &MonitorSpec) -> SpawnOptions {
    let options = SpawnOptions::new().envs(spec.env.clone()).stream_stdin(false);
    let options = match &spec.cwd {
        Some(cwd) => options.cwd(cwd),
        None => options,
    };
    if spec.persistent { options } else { options.timeout(Duration::from_millis(spec.timeout_ms)) }
}

fn end(outcome: Result<ExitStatus, ClientError>, spec: &MonitorSpec) -> End {
    match outcome {
        Ok(ExitStatus { cause: ExitCause::Timeout, signal, .. }) => {
            End::TimedOut { after_ms: spec.timeout_ms, signal }
        }
        Ok(ExitStatus { signal: Some(signal), .. }) => End::Signalled { signal },
        Ok(ExitStatus { code, .. }) => End::Exited { status: code },
        Err(error) => not_run(&error),
    }
}

fn not_run(error: &ClientError) -> End {
    match error {
        ClientError::Disposed
        | ClientError::VmFailed { .. }
        | ClientError::SidecarExited { .. }
        | ClientError::Disconnected { .. }
        | ClientError::TerminationUnconfirmed { .. } => End::Lost(error.to_string()),
        _ => End::StartFailed(error.to_string()),
    }
}

/// One output of the process, read as lines.
struct Reader {
    stream: ByteStream,
    which: MonitorStream,
    lines: Lines,
    open: bool,
}

impl Reader {
    fn new(stream: ByteStream, which: MonitorStream, max_line_bytes: usize) -> Self {
        Self { stream: stream.until_exit(), which, lines: Lines::new(max_line_bytes), open: true }
    }

    fn take(
        &mut self,
        output: Option<Result<Output, StreamLost>>,
        take: impl Fn(MonitorStream, &mut Vec<Line>),
    ) {
        let mut lines = Vec::new();
        match output {
            Some(Ok(Output::Data(bytes))) => self.lines.push(&bytes, &mut lines),
            // Only where the process was killed at its deadline: then nobody is waited for.
            Some(Ok(Output::Gap { missed_bytes })) => {
                self.lines.end(&mut lines);
                lines.push(Line { text: format!("({missed_bytes} bytes missed)"), truncated: true });
            }
            Some(Err(StreamLost)) | None => {
                self.lines.end(&mut lines);
                self.open = false;
            }
        }
        take(self.which, &mut lines);
    }
}

/// Kills a process with its tree if it still runs when this is dropped.
struct KillsWhenDropped(Process);

impl Drop for KillsWhenDropped {
    fn drop(&mut self) {
        self.0.kill();
    }
}
