//! A VM for one test: boots it, runs scripts in it, and after the test checks that nothing of it is left.

use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::time::Duration;

use agentvm_wire::id::{ProcessId, VmId};
use agentvm_wire::process::SignalTarget;
use agentvm_wire::vm::{VmConfig, VmUser};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Gid, Uid, fchown};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::time::Timespec;
use serde::de::DeserializeOwned;
use tokio::runtime::Runtime;

use crate::init::{Event, Page, ReadError, Reading, Row, StartSpec, Stdio};
use crate::zygote::{Booted, Zygote};

/// How long anything may take before a test gives up on it.
const LIMIT: Duration = Duration::from_secs(30);

/// A zygote and a runtime to use it with.
pub(super) struct Host {
    pub(super) zygote: Zygote,
    runtime: Runtime,
}

impl Host {
    pub(super) fn new() -> Self {
        Self::of(Zygote::start())
    }

    pub(super) fn of(zygote: Zygote) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        Self { zygote, runtime }
    }

    pub(super) fn run<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime
            .block_on(async { tokio::time::timeout(LIMIT, future).await.expect("it is done in time") })
    }

    pub(super) fn boot(&self, config: &VmConfig) -> Booted {
        self.run(self.zygote.create_vm(VmId::random(), config)).unwrap_or_else(|error| panic!("{error}"))
    }
}

/// One VM, ended and checked when dropped.
pub(super) struct Vm {
    pub(super) booted: Booted,
    next: u32,
    /// Events that came while another was awaited.
    kept: VecDeque<Event>,
    ended: bool,
    // Dropped last: the zygote is asked for its children before.
    host: Host,
}

/// What a script did.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Done {
    pub(super) code: Option<u8>,
    pub(super) output: String,
}

pub(super) fn root() -> VmConfig {
    VmConfig { user: VmUser { root: true }, ..VmConfig::default() }
}

impl Vm {
    pub(super) fn new() -> Self {
        Self::with(&VmConfig::default())
    }

    pub(super) fn with(config: &VmConfig) -> Self {
        let host = Host::new();
        let booted = host.boot(config);
        Self { booted, next: 1, kept: VecDeque::new(), ended: false, host }
    }

    pub(super) fn zygote(&self) -> &Zygote {
        &self.host.zygote
    }

    pub(super) fn wait_until_childless(&self) {
        self.host.wait_until_childless();
    }

    /// A number no process of this VM has had.
    pub(super) fn id(&mut self) -> ProcessId {
        self.next += 1;
        ProcessId(self.next)
    }

    /// The next event.
    pub(super) fn event(&mut self) -> Event {
        self.kept.pop_front().unwrap_or_else(|| self.new_event())
    }

    fn new_event(&mut self) -> Event {
        let event = self.host.run(self.booted.events.next());
        self.ended |= event == Event::Ended;
        event
    }

    pub(super) fn run<T>(&self, future: impl Future<Output = T>) -> T {
        self.host.run(future)
    }

    pub(super) fn spec(&self, command: &str, args: &[&str]) -> StartSpec {
        StartSpec {
            args: args.iter().map(|arg| arg.as_bytes().to_vec()).collect(),
            ..StartSpec::new(command, bytes(&self.booted.environment), &self.booted.cwd)
        }
    }

    /// Starts a process and waits until it runs.
    pub(super) fn start(&mut self, command: &str, args: &[&str]) -> ProcessId {
        let (id, spec) = (self.id(), self.spec(command, args));
        self.booted.commands.start(id, spec);
        self.await_start(id);
        id
    }

    /// Waits until a process runs; what is told of others before, as nothing forbids, stays to be read.
    fn await_start(&mut self, id: ProcessId) {
        loop {
            match self.new_event() {
                Event::Started { process, .. } if process == id => return,
                Event::StartFailed { process, step, errno } if process == id => {
                    panic!("{id} failed at {step:?} with {errno}")
                }
                Event::Ended => panic!("the VM ended before {id} ran"),
                other => self.kept.push_back(other),
            }
        }
    }

    /// A pipe whose writing end belongs to the guest.
    pub(super) fn pipe(&self) -> (OwnedFd, OwnedFd) {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        if let Some((uid, gid)) = self.booted.guest_ids {
            fchown(&write, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid))).unwrap();
        }
        (read, write)
    }

    /// Runs a shell script to its end; standard error goes to the output too.
    pub(super) fn sh(&mut self, script: &str) -> Done {
        self.exec("/bin/sh", &["-c", script])
    }

    /// Runs a command to its end.
    pub(super) fn exec(&mut self, command: &str, args: &[&str]) -> Done {
        let (read, write) = self.pipe();
        let id = self.id();
        let spec =
            StartSpec { stdout: Stdio::Fd(write), stderr: Stdio::ToStdout, ..self.spec(command, args) };
        let reader = std::thread::spawn(move || {
            let mut output = String::new();
            std::fs::File::from(read).read_to_string(&mut output).map(|_| output)
        });
        self.booted.commands.start(id, spec);
        let code = loop {
            match self.event() {
                Event::Exited { process, exit } if process == id => break exit.exit_code,
                Event::StartFailed { process, step, errno } if process == id => {
                    panic!("{command} failed at {step:?} with {errno}")
                }
                Event::Ended => panic!("the VM ended"),
                _ => {}
            }
        };
        Done { code, output: reader.join().unwrap().unwrap() }
    }

    /// Runs a Python program in the VM; `None`, with a word why, where the host has no Python to share.
    pub(super) fn python(&mut self, program: &str) -> Option<Done> {
        if !std::path::Path::new("/usr/bin/python3").exists() {
            println!("skipped: this host has no /usr/bin/python3 to share");
            return None;
        }
        Some(self.exec("/usr/bin/python3", &["-c", program]))
    }

    /// The process table, while events are awaited as the sidecar does; none may come.
    pub(super) fn list(&mut self) -> Result<Vec<Row>, ReadError> {
        self.list_within(1 << 20, Duration::from_secs(10))
    }

    pub(super) fn list_within(
        &mut self,
        max_bytes: usize,
        deadline: Duration,
    ) -> Result<Vec<Row>, ReadError> {
        let listing = self.page(0, max_bytes, deadline)?;
        assert!(!listing.more, "the table fits in {max_bytes} bytes");
        Ok(listing.rows)
    }

    pub(super) fn page(
        &mut self,
        after: u32,
        max_bytes: usize,
        deadline: Duration,
    ) -> Result<Page<Row>, ReadError> {
        self.read_within(Reading::Table { after }, max_bytes, deadline)
    }

    /// Anything there is to read.
    pub(super) fn read<T: DeserializeOwned>(&mut self, what: Reading) -> Result<Page<T>, ReadError> {
        self.read_within(what, 1 << 20, Duration::from_secs(10))
    }

    fn read_within<T: DeserializeOwned>(
        &mut self,
        what: Reading,
        max_bytes: usize,
        deadline: Duration,
    ) -> Result<Page<T>, ReadError> {
        let commands = self.booted.commands.clone();
        let (events, ended) = (&mut self.booted.events, &mut self.ended);
        self.host.run(async {
            let reading = commands.read(what, max_bytes, deadline);
            tokio::pin!(reading);
            loop {
                tokio::select! {
                    page = &mut reading => return page,
                    event = events.next() => *ended |= event == Event::Ended,
                }
            }
        })
    }

    /// Starts a script and waits for the first line it writes.
    pub(super) fn start_until_line(&mut self, script: &str) -> (ProcessId, String) {
        let (read, write) = self.pipe();
        let id = self.id();
        let spec = StartSpec { stdout: Stdio::Fd(write), ..self.spec("/bin/sh", &["-c", script]) };
        self.booted.commands.start(id, spec);
        self.await_start(id);
        (id, first_line(&read))
    }

    /// Kills a tree and waits for the answer and, if it still ran, for its end. How many were killed.
    pub(super) fn kill_tree(&mut self, id: ProcessId) -> u32 {
        self.booted.commands.signal(u64::from(id.0), id, libc::SIGKILL, SignalTarget::Tree);
        loop {
            if let Event::Signaled { token, delivered } = self.event()
                && token == u64::from(id.0)
            {
                return delivered;
            }
        }
    }

    fn end(&mut self) {
        self.booted.commands.end();
        while !self.ended {
            self.event();
        }
    }
}

impl Drop for Vm {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        self.end();
        assert_eq!(children_of(self.host.zygote.pid()), Vec::<u32>::new(), "the zygote has no init left");
    }
}

pub(super) fn bytes(environment: &BTreeMap<String, String>) -> Vec<(Vec<u8>, Vec<u8>)> {
    environment.iter().map(|(key, value)| (key.clone().into(), value.clone().into())).collect()
}

/// Children of a process that are more than zombies.
pub(super) fn children_of(pid: u32) -> Vec<u32> {
    let mut children = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Ok(stat) = std::fs::read_to_string(entry.path().join("stat")) else { continue };
        let Some((_, fields)) = stat.rsplit_once(')') else { continue };
        let mut fields = fields.split_whitespace();
        if fields.next() != Some("Z") && fields.next().and_then(|ppid| ppid.parse().ok()) == Some(pid) {
            children.extend(entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()));
        }
    }
    children
}

impl Host {
    /// Waits until no init of this zygote is left.
    pub(super) fn wait_until_childless(&self) {
        let start = std::time::Instant::now();
        while !children_of(self.zygote.pid()).is_empty() {
            assert!(start.elapsed() < LIMIT, "an init is left");
            std::thread::yield_now();
        }
    }

    /// Waits until no private folder is left: supervisors remove them last.
    pub(super) fn wait_until_folderless(&self) {
        let state = self.zygote.state_folder().expect("a VM without namespaces was to be made");
        let start = std::time::Instant::now();
        while std::fs::read_dir(&state).unwrap().next().is_some() {
            assert!(start.elapsed() < LIMIT, "something is left in {}", state.display());
            std::thread::yield_now();
        }
    }

    /// Lets go of the zygote.
    pub(super) fn into_runtime(self) -> Runtime {
        self.runtime
    }
}

/// The first line that comes out of a pipe.
pub(super) fn first_line(pipe: &OwnedFd) -> String {
    let mut line = Vec::new();
    loop {
        let limit = Timespec { tv_sec: LIMIT.as_secs().cast_signed(), tv_nsec: 0 };
        let mut watched = [PollFd::new(pipe, PollFlags::IN)];
        let ready = rustix::io::retry_on_intr(|| poll(&mut watched, Some(&limit))).unwrap();
        assert_eq!(ready, 1, "a line comes in time; so far {:?}", String::from_utf8_lossy(&line));
        let mut byte = [0];
        match rustix::io::read(pipe, &mut byte).unwrap() {
            1 if byte != *b"\n" => line.extend(byte),
            _ => return String::from_utf8_lossy(&line).into_owned(),
        }
    }
}

/// The wall clock, milliseconds since the epoch.
#[expect(clippy::disallowed_methods, reason = "what is told is compared with it")]
pub(super) fn now_ms() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    since.as_millis().try_into().unwrap()
}
