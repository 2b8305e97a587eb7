//! From `execute` to what init is asked: pipes, environment, working directory.

use std::{collections::BTreeMap, io, os::fd::OwnedFd, sync::Arc, time::Duration};

use agentvm_wire::{
    bytes64,
    error::{Code, Rejection},
    id::{RequestId, StreamId, VmId},
    process::{Execute, OutputMode, StdinMode},
};
use tokio::{io::unix::AsyncFd, sync::Notify, time::Instant};

use super::{Outputs, Process, memory::Memory, not_in_time};
use crate::{
    init::{Commands, StartSpec, Stdio},
    link::Link,
    stdio::{
        pipe::{self, Owner},
        sink::Sink,
        source::Source,
    },
    vm::{Work, deadlines::after},
};

/// What a start has made.
pub(crate) struct Started {
    pub(crate) process: Process,
    pub(crate) spec: StartSpec,
    /// One for each piped stream, ending with it.
    pub(crate) pumps: Vec<Work>,
}

/// What a VM gives to all its processes.
pub(crate) struct Defaults<'a> {
    pub(crate) environment: &'a BTreeMap<String, String>,
    pub(crate) cwd: &'a str,
    pub(crate) owner: Owner,
    pub(crate) commands: &'a Commands,
}

/// Opens the streams, makes the pipes and gathers what init needs.
pub(crate) fn start(
    link: &Arc<Link>,
    vm: VmId,
    request: RequestId,
    execute: Execute,
    defaults: &Defaults<'_>,
) -> Result<Started, Rejection> {
    let deadline = execute.timeout_ms.map(after);
    if execute.timeout_ms == Some(0) {
        return Err(not_in_time());
    }
    execute.validate()?;
    execute.validate_streams()?;
    let (streams, window) = (execute.streams, execute.window_bytes);
    link.open_streams(execute.stream_ids().collect(), window)?;

    let (memory, memory_limit) = Memory::limit(defaults.commands, &execute)?;
    let pipes = Pipes::make(&execute, defaults.owner).map_err(|error| no_pipes(&error))?;
    let activity = Arc::new(Notify::new());
    let mut pumps: Vec<Work> = Vec::new();
    let mut source = |ours: Option<(StreamId, OwnedFd)>| {
        ours.map(|(stream, pipe)| {
            let source = Source::new(stream, pipe, activity.clone());
            link.add_source(stream, source.clone(), vm, window);
            pumps.push(Box::pin(source.clone().pump(link.clone())));
            source
        })
    };
    let outputs = Outputs {
        stdout: source(streams.stdout.zip(pipes.our_stdout)),
        stderr: source(streams.stderr.zip(pipes.our_stderr)),
        activity: activity.clone(),
    };
    if let Some((stream, pipe)) = streams.stdin.zip(pipes.our_stdin) {
        let sink = Sink::new(stream);
        link.add_sink(&sink, vm, window);
        pumps.push(Box::pin(sink.pump(pipe, link.clone())));
    }

    let cwd = execute.cwd.clone().unwrap_or_else(|| defaults.cwd.to_owned());
    let process = Process::new(request, &execute, cwd, outputs, deadline, memory);
    let spec = StartSpec {
        env: environment(defaults.environment, &execute.env),
        cwd: execute
            .cwd
            .map_or_else(|| defaults.cwd.as_bytes().to_vec(), |cwd| bytes64::join(cwd, execute.cwd_b64)),
        command: bytes64::join(execute.command, execute.command_b64),
        script: execute.script,
        arg0: execute.arg0.map(String::into_bytes),
        args: bytes64::join_all(execute.args, execute.args_b64),
        stdin: pipes.stdin,
        stdout: pipes.stdout,
        stderr: pipes.stderr,
        deadline: deadline.map(Instant::into_std),
        memory: memory_limit,
        watcher: None,
        cpu_limit: execute.cpu_time_limit_ms.map(Duration::from_millis),
        observed: false,
    };
    Ok(Started { process, spec, pumps })
}

/// Both ends of the pipes of one process.
struct Pipes {
    stdin: Stdio,
    stdout: Stdio,
    stderr: Stdio,
    our_stdin: Option<AsyncFd<OwnedFd>>,
    our_stdout: Option<OwnedFd>,
    our_stderr: Option<OwnedFd>,
}

impl Pipes {
    fn make(execute: &Execute, owner: Owner) -> io::Result<Self> {
        let (our_stdin, stdin) = match execute.stdin {
            StdinMode::Null => (None, Stdio::Null),
            StdinMode::Pipe => {
                let (ours, theirs) = pipe::input(owner)?;
                (Some(ours), Stdio::Fd(theirs))
            }
        };
        let (our_stdout, stdout) = Self::output(execute.stdout, owner)?;
        let (our_stderr, stderr) = Self::output(execute.stderr, owner)?;
        Ok(Self { stdin, stdout, stderr, our_stdin, our_stdout, our_stderr })
    }

    fn output(mode: OutputMode, owner: Owner) -> io::Result<(Option<OwnedFd>, Stdio)> {
        Ok(match mode {
            OutputMode::Null => (None, Stdio::Null),
            OutputMode::ToStdout => (None, Stdio::ToStdout),
            OutputMode::Pipe => {
                let (ours, theirs) = pipe::output(owner)?;
                (Some(ours), Stdio::Fd(theirs))
            }
        })
    }
}

fn no_pipes(error: &io::Error) -> Rejection {
    let mut rejection = Rejection::new(Code::RESOURCE_EXHAUSTED, format!("no pipes for a process: {error}"));
    rejection.details.errno = error.raw_os_error();
    rejection.details.retryable = Some(true);
    rejection
}

/// The VM's environment, overlaid by the call's own.
fn environment(base: &BTreeMap<String, String>, own: &BTreeMap<String, String>) -> Vec<(Vec<u8>, Vec<u8>)> {
    let inherited = base.iter().filter(|(key, _)| !own.contains_key(*key));
    inherited.chain(own).map(|(key, value)| (key.clone().into_bytes(), value.clone().into_bytes())).collect()
}
