//! Starting a process: a plain fork (never vfork: a guest of the same uid could stop the child and with it init), then
//! in the child everything that turns it into a guest, then exec.
//!
//! ```text
//!   child:  prepare ──► request ──► become the guest ──► Told::Go ────► exec
//!                       │ came with the fork,          └► Told::Fault   └► Told::Fault
//!                       └ or is awaited for a while, after a rehearsal: a spare
//! ```
//!
//! What the child tells comes over a close-on-exec socket of its own, which init watches. The socket's end means that
//! it is decided.

use std::convert::Infallible;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::time::Duration;

use agentvm_wire::vm::Isolation;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{AtFlags, CWD, statat};
use rustix::io::Errno;
use rustix::net::RecvFlags;
use rustix::process::{
    DumpableBehavior, Pid, chdir, getpid, set_child_subreaper, set_dumpable_behavior, setsid,
};
use rustix::time::Timespec;
use serde::{Deserialize, Serialize};

use super::client::now_ns;
use super::messages::{Memory, Start, StartStep, Stream, Text};
use super::reap::now_ms;
use super::rehearsal::rehearse;
use super::stat;
use super::strings::Strings;
use super::terms::Terms;
use crate::isolation::plan::Plan;
use crate::isolation::{capabilities, cgroup, identity, rlimits};
use crate::keeper::handshake;
use crate::packet::{self, Packet};
use crate::sys::clone::{Forked, fork};
use crate::sys::exec::exit_now;
use crate::sys::{SingleThreaded, descriptors, signals};

/// How long a child may take until exec. It runs no guest code before that; only being stopped can delay it.
pub(super) const DEADLINE: Duration = Duration::from_secs(10);

/// How long a spare waits: an idle VM has none, and no process looks much older than its start.
const PATIENCE: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// A child that still runs our code.
#[derive(Debug)]
pub(super) struct Child {
    pub pid: Pid,
    /// Ends with that.
    pub socket: OwnedFd,
}

/// A step that failed, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StartFault {
    pub step: StartStep,
    pub errno: i32,
}

impl StartFault {
    /// The child ended without a word: somebody killed it.
    pub(super) const WORDLESS: Self = Self { step: StartStep::Handshake, errno: libc::ECHILD };

    /// Its time was up.
    pub(super) const LATE: Self = Self { step: StartStep::Deadline, errno: libc::ETIMEDOUT };

    /// Its keeper went away when it could not do without any more.
    pub(super) const FORSAKEN: Self = Self { step: StartStep::Handshake, errno: libc::EOWNERDEAD };

    pub(super) fn new(step: StartStep, errno: Errno) -> Self {
        Self { step, errno: errno.raw_os_error() }
    }
}

fn at(step: StartStep) -> impl Fn(Errno) -> StartFault {
    move |errno| StartFault::new(step, errno)
}

/// A child's last words before it executes its command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Go {
    /// The mark of its tree.
    pub mark: u64,
    /// Milliseconds since the epoch, told by the child itself: no clock the command reads is earlier.
    pub started_at_ms: u64,
    /// When its process began, where that was asked for.
    pub start_ticks: Option<u64>,
}

/// What a child tells before its socket ends.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Told {
    /// It executes the command now.
    Go(Go),
    /// It does not, and is about to exit.
    Fault(StartFault),
}

/// How a child gets to know what it is to become.
#[derive(Debug, Clone, Copy)]
pub(super) enum Wanted<'a> {
    /// It knows.
    This(&'a Packet<Start>),
    /// Over a socket.
    From(&'a OwnedFd),
}

/// Forks a child that becomes what is wanted.
pub(super) fn fork_child(
    wanted: Wanted<'_>,
    terms: &Terms<'_>,
    proof: SingleThreaded,
) -> Result<Child, StartFault> {
    let (inits, childs) = packet::pair().map_err(at(StartStep::Fork))?;
    match fork(proof, terms.plan.isolation == Isolation::Sandbox).map_err(at(StartStep::Fork))? {
        Forked::Parent(pid) => Ok(Child { pid, socket: inits }),
        Forked::Child => {
            drop(inits);
            let Err(fault) = run(wanted, terms, &childs);
            // A fresh socket has room for it; without it init sees a failed handshake.
            let _ = packet::send(&childs, &packet::encode(&Told::Fault(fault)), &[]);
            exit_now(127)
        }
    }
}

/// Is the child.
fn run(wanted: Wanted<'_>, terms: &Terms<'_>, init: &OwnedFd) -> Result<Infallible, StartFault> {
    signals::unblock_all().map_err(at(StartStep::Session))?;
    signals::restore(libc::SIGXFSZ);
    setsid().map_err(at(StartStep::Session))?;
    terms.accept().map_err(at(StartStep::Limits))?;
    let mark = own_mark(terms.plan).map_err(at(StartStep::Handshake))?;
    match wanted {
        Wanted::This(request) => become_guest_and_exec(request, terms.plan, mark, init),
        Wanted::From(socket) => {
            let kept = [init.as_raw_fd(), socket.as_raw_fd()];
            descriptors::close_all_but(kept).map_err(at(StartStep::Stdio))?;
            rehearse();
            // Never dropped: the child closes by number what came along, as it does with what came by the fork.
            let request = ManuallyDrop::new(await_request(socket));
            become_guest_and_exec(&request, terms.plan, mark, init)
        }
    }
}

/// Its UTS namespace in a sandbox, elsewhere its session, which it has just begun.
fn own_mark(plan: &Plan) -> rustix::io::Result<u64> {
    match plan.isolation {
        Isolation::Sandbox => Ok(statat(CWD, "/proc/self/ns/uts", AtFlags::empty())?.st_ino),
        _ => Ok(u64::from(getpid().as_raw_nonzero().get().unsigned_abs())),
    }
}

/// Clock ticks from the start of the machine to that of the child.
fn own_start_ticks() -> Option<u64> {
    stat::start_ticks(&std::fs::read("/proc/self/stat").ok()?)
}

/// Ends the child, without a word, if nothing comes: init then starts another one, should something have been sent.
fn await_request(socket: &OwnedFd) -> Packet<Start> {
    let mut buffer = [0; packet::MAX_BYTES];
    let came = poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&PATIENCE)).is_ok_and(|ready| ready == 1);
    let request = came.then(|| packet::receive(socket, &mut buffer, RecvFlags::DONTWAIT));
    let Some(Ok(Some(request))) = request else { exit_now(0) };
    request
}

fn become_guest_and_exec(
    request: &Packet<Start>,
    plan: &Plan,
    mark: u64,
    init: &OwnedFd,
) -> Result<Infallible, StartFault> {
    let Passed { text, group, watcher, streams } = split(request)?;
    connect_streams(request.message.streams, streams).map_err(at(StartStep::Stdio))?;
    let strings = Strings::read(&request.message, text).map_err(at(StartStep::Request))?;
    group.map_or(Ok(()), cgroup::enter).map_err(at(StartStep::Limits))?;
    let kept = [init.as_raw_fd(), watcher.unwrap_or(init).as_raw_fd()];
    descriptors::close_all_but(kept).map_err(at(StartStep::Stdio))?;
    rlimits::limit_guest(&plan.limits).map_err(at(StartStep::Limits))?;
    if let Some(Memory::Each(bytes)) = request.message.memory {
        rlimits::limit_data(bytes).map_err(at(StartStep::Limits))?;
    }
    // As long as this runs our code nobody in the VM may look into it; exec ends that.
    set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(at(StartStep::Identity))?;
    if plan.isolation != Isolation::Sandbox {
        // Descendants then stay below it, wherever they go; exec keeps that.
        set_child_subreaper(Some(getpid())).map_err(at(StartStep::Session))?;
    }
    // Before anybody watches what it opens.
    let start_ticks = request.message.observed.then(own_start_ticks).flatten();
    if let Some(watcher) = watcher {
        handshake::present_itself(watcher).map_err(|handshake::Forsaken| StartFault::FORSAKEN)?;
    }
    identity::become_id(plan.guest_id(), plan.id_maps).map_err(at(StartStep::Identity))?;
    capabilities::become_guest(plan).map_err(at(StartStep::Identity))?;
    chdir(strings.cwd()).map_err(at(StartStep::Cwd))?;
    if request.message.deadline_ns.is_some_and(|deadline| deadline <= now_ns()) {
        return Err(StartFault::LATE);
    }
    let go = Go { mark, started_at_ms: now_ms(), start_ticks };
    packet::send(init, &packet::encode(&Told::Go(go)), &[]).map_err(at(StartStep::Handshake))?;
    let refused = if request.message.script { strings.exec_script() } else { strings.exec() };
    Err(StartFault::new(StartStep::Exec, refused))
}

/// Makes a request one for a process that nobody watches.
pub(super) fn unwatch(Packet { message, descriptors }: &mut Packet<Start>) {
    if std::mem::take(&mut message.watched) {
        let (text, group) = before_the_watcher(message);
        drop(descriptors.remove(text + group));
    }
}

/// The descriptors that came along.
struct Passed<'a> {
    text: Option<&'a OwnedFd>,
    group: Option<&'a OwnedFd>,
    watcher: Option<&'a OwnedFd>,
    streams: &'a [OwnedFd],
}

/// How many descriptors there are for the text, and how many for the group.
fn before_the_watcher(message: &Start) -> (usize, usize) {
    (usize::from(message.text == Text::Memory), usize::from(message.memory == Some(Memory::Group)))
}

/// Names the descriptors: exactly those that must be there.
fn split(Packet { message, descriptors }: &Packet<Start>) -> Result<Passed<'_>, StartFault> {
    let (text, group) = before_the_watcher(message);
    let watcher = usize::from(message.watched);
    let streams = message.streams.iter().filter(|stream| **stream == Stream::Passed).count();
    if descriptors.len() != text + group + watcher + streams {
        return Err(StartFault::new(StartStep::Request, Errno::BADF));
    }
    let (text, rest) = descriptors.split_at(text);
    let (group, rest) = rest.split_at(group);
    let (watcher, streams) = rest.split_at(watcher);
    Ok(Passed { text: text.first(), group: group.first(), watcher: watcher.first(), streams })
}

/// Puts the streams on descriptors 0 to 2. `Null` is what init itself has there.
pub(super) fn connect_streams(streams: [Stream; 3], passed: &[OwnedFd]) -> rustix::io::Result<()> {
    let mut passed = passed.iter();
    for (number, stream) in (0..).zip(streams) {
        match stream {
            Stream::Null => {}
            Stream::Passed => descriptors::put_at(passed.next().ok_or(Errno::BADF)?, number)?,
            Stream::ToStdout => descriptors::put_at(descriptors::standard_output(), number)?,
        }
    }
    Ok(())
}

/// Whether a child's socket has ended.
pub(super) fn is_decided(socket: &OwnedFd) -> bool {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    let mut watched = [PollFd::new(socket, PollFlags::empty())];
    poll(&mut watched, Some(&now)).is_ok() && watched[0].revents().contains(PollFlags::HUP)
}

/// Whether a child has told anything that was not read yet.
pub(super) fn has_spoken(socket: &OwnedFd) -> bool {
    let flags = RecvFlags::DONTWAIT | RecvFlags::PEEK;
    rustix::net::recv(socket, &mut [0; 1], flags).is_ok_and(|(_, len)| len > 0)
}

/// The outcome of a start whose socket has ended: the command was executed, or what failed.
pub(super) fn outcome(socket: &OwnedFd) -> Result<Go, StartFault> {
    let told = || match packet::receive(socket, &mut [0; 64], RecvFlags::DONTWAIT) {
        Ok(Some(Packet { message, .. })) => Some(message),
        Ok(None) | Err(_) => None,
    };
    match (told(), told()) {
        (Some(Told::Go(go)), None) => Ok(go),
        (Some(Told::Fault(fault)), None) | (Some(Told::Go(_)), Some(Told::Fault(fault))) => Err(fault),
        _ => Err(StartFault::WORDLESS),
    }
}
