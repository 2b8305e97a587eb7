//! Starting a process: a plain fork (never vfork: a guest of the same uid could stop the child and with it init), then
//! in the child everything that turns it into a guest, then exec.
//!
//! The outcome comes over a close-on-exec pipe that init watches: the child's [`Mark`], and behind it step and errno
//! if something failed. The pipe's end means that it is decided.

use std::os::fd::{AsRawFd as _, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{AtFlags, statat};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{DumpableBehavior, Pid, chdir, set_dumpable_behavior, setsid};
use rustix::time::Timespec;

use super::messages::{Start, StartStep, Stream, Text};
use super::strings::Strings;
use super::table::Mark;
use crate::isolation::plan::Plan;
use crate::isolation::{capabilities, identity, rlimits};
use crate::packet::Packet;
use crate::sys::clone::{Forked, fork};
use crate::sys::exec::exit_now;
use crate::sys::{SingleThreaded, descriptors, signals};

/// How long a child may take until exec. It runs no guest code before that; only being stopped can delay it.
pub(super) const DEADLINE: Duration = Duration::from_secs(10);

/// A child on its way to exec.
#[derive(Debug)]
pub(super) struct Starting {
    pub pid: Pid,
    pub status: OwnedFd,
    pub deadline: Instant,
}

/// A step that failed, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StartFault {
    pub step: StartStep,
    pub errno: i32,
}

impl StartFault {
    pub(super) fn new(step: StartStep, errno: Errno) -> Self {
        Self { step, errno: errno.raw_os_error() }
    }
}

/// Forks a child that becomes the guest process.
pub(super) fn start(
    request: &Packet<Start>,
    plan: &Plan,
    proof: SingleThreaded,
) -> Result<Starting, StartFault> {
    let (status, report) =
        pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).map_err(at(StartStep::Fork))?;
    match fork(proof, true).map_err(at(StartStep::Fork))? {
        Forked::Parent(pid) => Ok(Starting { pid, status, deadline: Instant::now() + DEADLINE }),
        Forked::Child => {
            let fault = match become_guest_and_exec(request, plan, &report) {
                Ok(never) => match never {},
                Err(fault) => fault,
            };
            // A pipe with room for these few bytes never refuses them; without them init sees a failed handshake.
            let _ = rustix::io::write(&report, &encode_fault(fault));
            exit_now(127)
        }
    }
}

fn become_guest_and_exec(
    request: &Packet<Start>,
    plan: &Plan,
    report: &OwnedFd,
) -> Result<std::convert::Infallible, StartFault> {
    signals::unblock_all().map_err(at(StartStep::Session))?;
    setsid().map_err(at(StartStep::Session))?;
    let (memory, passed) = split(request)?;
    connect_streams(request.message.streams, passed).map_err(at(StartStep::Stdio))?;
    let strings = Strings::read(&request.message, memory).map_err(at(StartStep::Request))?;
    descriptors::close_all_but(report.as_raw_fd()).map_err(at(StartStep::Stdio))?;
    rlimits::limit_guest(&plan.limits).map_err(at(StartStep::Limits))?;
    // As long as this runs our code nobody in the VM may look into it; exec ends that.
    set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(at(StartStep::Identity))?;
    identity::become_id(plan.guest.id(), plan.id_maps).map_err(at(StartStep::Identity))?;
    capabilities::become_guest(plan.guest).map_err(at(StartStep::Identity))?;
    chdir(strings.cwd()).map_err(at(StartStep::Cwd))?;
    let mark =
        statat(rustix::fs::CWD, "/proc/self/ns/uts", AtFlags::empty()).map_err(at(StartStep::Handshake))?;
    rustix::io::write(report, &mark.st_ino.to_le_bytes()).map_err(at(StartStep::Handshake))?;
    Err(StartFault::new(StartStep::Exec, strings.exec()))
}

fn at(step: StartStep) -> impl Fn(Errno) -> StartFault {
    move |errno| StartFault::new(step, errno)
}

/// The memfd, if the text is in one, and the descriptors of the passed streams: exactly those that must be there.
fn split(request: &Packet<Start>) -> Result<(Option<&OwnedFd>, &[OwnedFd]), StartFault> {
    let (memory, passed) = match (&request.message.text, &request.descriptors[..]) {
        (Text::Memory, [memory, passed @ ..]) => (Some(memory), passed),
        (Text::Inline(_), passed) => (None, passed),
        (Text::Memory, []) => return Err(StartFault::new(StartStep::Request, Errno::BADF)),
    };
    let expected = request.message.streams.iter().filter(|stream| **stream == Stream::Passed).count();
    if passed.len() == expected {
        Ok((memory, passed))
    } else {
        Err(StartFault::new(StartStep::Request, Errno::BADF))
    }
}

/// Puts the streams on descriptors 0 to 2. `Null` is what init itself has there.
fn connect_streams(streams: [Stream; 3], passed: &[OwnedFd]) -> rustix::io::Result<()> {
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

/// Bytes of a mark on the status pipe.
const MARK_BYTES: usize = size_of::<u64>();
/// Bytes of a fault.
const FAULT_BYTES: usize = 1 + size_of::<i32>();

fn encode_fault(fault: StartFault) -> [u8; FAULT_BYTES] {
    let step = StartStep::ALL.iter().position(|step| *step == fault.step).unwrap_or(0);
    let mut bytes = [0; FAULT_BYTES];
    bytes[0] = u8::try_from(step).unwrap_or(0);
    bytes[1..].copy_from_slice(&fault.errno.to_le_bytes());
    bytes
}

/// Whether the pipe of a start has ended.
pub(super) fn is_decided(status: &OwnedFd) -> bool {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    let mut watched = [PollFd::new(status, PollFlags::empty())];
    poll(&mut watched, Some(&now)).is_ok() && watched[0].revents().contains(PollFlags::HUP)
}

/// Reads the outcome of a start whose pipe has ended: the mark of the new tree, or what failed.
pub(super) fn outcome(status: &OwnedFd) -> Result<Mark, StartFault> {
    let mut buffer = [0; MARK_BYTES + FAULT_BYTES];
    let count = rustix::io::read(status, &mut buffer).unwrap_or(0);
    decode_outcome(&buffer[..count])
}

fn decode_outcome(bytes: &[u8]) -> Result<Mark, StartFault> {
    let early = StartFault::new(StartStep::Handshake, Errno::CHILD);
    // Without a mark something failed before it was known; with one, a fault can only be exec's.
    let fault = match bytes.len() {
        MARK_BYTES => {
            let mark = <[u8; MARK_BYTES]>::try_from(bytes).map_err(|_| early)?;
            return Ok(Mark(u64::from_le_bytes(mark)));
        }
        FAULT_BYTES => bytes,
        len if len == MARK_BYTES + FAULT_BYTES => &bytes[MARK_BYTES..],
        _ => return Err(early),
    };
    let step = StartStep::ALL.get(usize::from(fault[0])).copied().ok_or(early)?;
    let errno = <[u8; 4]>::try_from(&fault[1..]).map_err(|_| early)?;
    Err(StartFault { step, errno: i32::from_le_bytes(errno) })
}
