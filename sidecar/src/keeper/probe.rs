//! What keepers can see on this host: tried, not concluded from versions and settings. A small program of our own is
//! watched by each means, and what is seen is compared with what it does.

use std::io;
use std::os::fd::OwnedFd;
use std::process::Stdio;
use std::time::Duration;

use agentvm_wire::id::ProcessId;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, connect, socket};
use rustix::thread::set_no_new_privs;
use tokio::process::Command;

use super::client::{Keeper, Sightings};
use super::handshake::present_itself;
use super::sighting::{Backend, FileAct, NetworkAct, Orders, Sighting, Wanted, What};
use crate::launch::{PROBE_NAME, PROBED_NAME};
use crate::sys::clone::{Forked, SingleThreaded, fork};
use crate::sys::exec::{StringArray, exec, exit_now};

/// How long one means may take; some milliseconds on a quiet host.
const LIMIT: Duration = Duration::from_secs(5);

/// What the program opens.
const FILE: &str = "/dev/null";

/// How its child ends, and how it does after it has executed itself.
const CHILD_CODE: u8 = 3;
const OWN_CODE: u8 = 5;

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probes {
    /// For each means, whether it sees beginnings, executions and ends, or why not.
    pub process: Vec<(Backend, Result<(), String>)>,
    /// Whether files that are opened are seen.
    pub file: Result<(), String>,
    /// Whether connections are.
    pub network: Result<(), String>,
}

/// What a means misses of processes though it probes well, by stable names.
pub fn process_gaps(backend: Backend) -> &'static [&'static str] {
    match backend {
        // A program of the tree that traces others itself is refused that.
        Backend::Ptrace => &["debugger"],
        // Who is killed before it calls anything that is asked about; stops; a listener that a program of the tree
        // wants for itself is refused.
        Backend::Notification => &["killed_early", "stops", "nested_listener"],
        Backend::Polling => &["sampled"],
    }
}

/// What is missed of files: how calls went; reads, writes and closes; what was open from the beginning; programs that
/// need `io_uring(7)` are told there is none.
pub const FILE_GAPS: &[&str] = &["attempts", "writes", "inherited", "io_uring", "nested_listener"];

/// What is missed of the network: how calls went; connections that were there from the beginning.
pub const NETWORK_GAPS: &[&str] = &["attempts", "inherited", "io_uring", "nested_listener"];

/// Tries everything. Needs a tokio runtime with its time enabled.
///
/// Cancel safety: safe; what runs is ended.
pub async fn probe() -> Probes {
    let process = Wanted { process: true, ..Wanted::default() };
    let mut found = Vec::new();
    for backend in Backend::ALL {
        found.push((backend, try_out(process, vec![backend]).await));
    }
    Probes {
        process: found,
        file: try_out(Wanted { file: true, ..Wanted::default() }, Vec::new()).await,
        network: try_out(Wanted { network: true, ..Wanted::default() }, Vec::new()).await,
    }
}

async fn try_out(wanted: Wanted, ladder: Vec<Backend>) -> Result<(), String> {
    let orders = Orders { wanted, ladder, require_exact: false };
    let seen = tokio::time::timeout(LIMIT, watch_program(&orders)).await;
    let seen = seen.map_err(|_| format!("nothing came of it within {LIMIT:?}"))?;
    judge(wanted, &seen.map_err(|error| error.to_string())?)
}

async fn watch_program(orders: &Orders) -> io::Result<Vec<Sighting>> {
    let (keeper, mut sightings) = Keeper::start(orders)?;
    let tree = ProcessId(1);
    let socket = keeper.expect(tree)?;
    let mut program = Command::new("/proc/self/exe");
    program.arg0(PROBE_NAME).env_clear().stdin(Stdio::from(socket));
    let child = program.stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true).spawn();
    // Only the program has the socket now.
    drop(program);
    let mut child = child?;
    let seen = follow(&mut sightings, tree).await;
    child.wait().await?;
    Ok(seen)
}

async fn follow(sightings: &mut Sightings, tree: ProcessId) -> Vec<Sighting> {
    let mut seen = Vec::new();
    while seen.last() != Some(&Sighting::Done { tree })
        && let Some(more) = sightings.next().await
    {
        seen.extend(more);
    }
    seen
}

fn judge(wanted: Wanted, seen: &[Sighting]) -> Result<(), String> {
    if let Some(errno) = seen.iter().find_map(|sighting| match sighting {
        Sighting::Unwatched { errno, .. } => Some(*errno),
        _ => None,
    }) {
        return Err(io::Error::from_raw_os_error(errno).to_string());
    }
    let acts = || {
        seen.iter().filter_map(|sighting| match sighting {
            Sighting::Saw { what, .. } => Some(what),
            _ => None,
        })
    };
    let count = |wanted: fn(&What) -> bool| acts().filter(|what| wanted(what)).count();
    let ended =
        |code| acts().filter(|what| **what == What::Exited { code: Some(code), signal: None }).count();
    let is_file = |what: &What| matches!(what, What::File(file) if file.act == FileAct::Open && file.path == FILE.as_bytes());
    let is_connection =
        |what: &What| matches!(what, What::Network(network) if network.act == NetworkAct::Connect);
    let missed = [
        (wanted.process && count(|what| matches!(what, What::Forked { .. })) != 1, "a beginning"),
        (wanted.process && count(|what| matches!(what, What::Executed(_))) != 1, "an execution"),
        (wanted.process && (ended(CHILD_CODE), ended(OWN_CODE)) != (1, 1), "an end"),
        (wanted.file && count(is_file) == 0, "a file that was opened"),
        (wanted.network && count(is_connection) == 0, "a connection"),
    ];
    match missed.into_iter().find(|(missed, _)| *missed) {
        Some((_, what)) => Err(format!("{what} of the program that was watched was not seen")),
        None => Ok(()),
    }
}

/// Is the program.
pub(crate) fn run(keeper: &OwnedFd) -> ! {
    // As in a VM. A listener needs it.
    let _ = set_no_new_privs(true);
    let Some(proof) = SingleThreaded::check().filter(|_| present_itself(keeper).is_ok()) else { exit_now(1) };
    match fork(proof, false) {
        Ok(Forked::Child) => exit_now(CHILD_CODE.into()),
        Ok(Forked::Parent(child)) => {
            let _ = rustix::process::waitpid(Some(child), rustix::process::WaitOptions::empty());
        }
        Err(_) => exit_now(1),
    }
    let name = std::ffi::CString::new(PROBED_NAME).unwrap_or_default();
    exec(c"/proc/self/exe", &StringArray::from_iter([&*name]), &StringArray::from_iter([]));
    exit_now(1)
}

/// Is what the program executes.
pub(crate) fn run_executed() -> ! {
    let _ = std::fs::File::open(FILE);
    if let Ok(client) = socket(AddressFamily::UNIX, SocketType::STREAM, None)
        && let Ok(nobody) = SocketAddrUnix::new_abstract_name(b"agentvm-probe")
    {
        let _ = connect(&client, &nobody);
    }
    exit_now(OWN_CODE.into())
}
