//! Descriptors of this program connected with the standard streams of a process: bytes are relayed, so that no foreign
//! descriptor enters a VM.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    sync::Arc,
};

use bytes::Bytes;
use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
};

use super::{entry::Entry, options::OutputCallback};
use crate::{
    callback::{self, guarded},
    error::ClientError,
};

/// Bytes read at once.
const READ_BYTES: usize = 64 << 10;

/// Which streams of a process are relayed.
#[derive(Debug, Default)]
pub(super) struct Descriptors {
    pub(super) stdin: Option<OwnedFd>,
    pub(super) stdout: Option<OwnedFd>,
    pub(super) stderr: Option<OwnedFd>,
}

impl Descriptors {
    /// Those of this program itself, for those that are not given.
    pub(super) fn or_inherited(self) -> Result<Self, ClientError> {
        let own = |given: Option<OwnedFd>, own: &dyn AsFd| {
            let descriptor = given.map_or_else(|| own.as_fd().try_clone_to_owned(), Ok);
            descriptor
                .map(Some)
                .map_err(|error| ClientError::invalid("stdio", format!("nothing to inherit: {error}")))
        };
        Ok(Self {
            stdin: own(self.stdin, &io::stdin())?,
            stdout: own(self.stdout, &io::stdout())?,
            stderr: own(self.stderr, &io::stderr())?,
        })
    }
}

/// Takes the output of a process.
pub(super) struct Taker {
    pub(super) take: OutputCallback,
    /// The program's own code is called.
    pub(super) calls_back: bool,
}

/// Takes output for the program's own code, and for a descriptor.
pub(super) fn output(
    name: &'static str,
    mut callback: Option<OutputCallback>,
    mut descriptor: Option<OwnedFd>,
) -> Option<Taker> {
    let calls_back = callback.is_some();
    if descriptor.is_none() {
        return callback.map(|take| Taker { take, calls_back });
    }
    let take = Box::new(move |bytes: &[u8]| {
        if let Some(call) = &mut callback
            && guarded(name, || call(bytes)).is_none()
        {
            callback = None;
        }
        if let Some(open) = &descriptor
            && let Err(error) = write_all(open, bytes)
        {
            tracing::warn!(stream = name, %error, "output can no longer be relayed and goes nowhere");
            descriptor = None;
        }
    });
    Some(Taker { take, calls_back })
}

fn write_all(descriptor: &OwnedFd, mut bytes: &[u8]) -> rustix::io::Result<()> {
    while !bytes.is_empty() {
        match rustix::io::write(descriptor, bytes) {
            Ok(written) => bytes = &bytes[written..],
            Err(Errno::INTR) => {}
            // Somebody else made it non-blocking.
            Err(Errno::AGAIN) => drop(poll(&mut [PollFd::new(descriptor, PollFlags::OUT)], None)?),
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// A descriptor that is read into the standard input of a process.
pub(super) struct Input {
    descriptor: OwnedFd,
    /// Says that the process has ended.
    ended: io::PipeReader,
    ends: io::PipeWriter,
}

impl Input {
    pub(super) fn new(descriptor: OwnedFd) -> Result<Self, ClientError> {
        let (ended, ends) =
            io::pipe().map_err(|error| ClientError::invalid("stdin_fd", format!("no pipe: {error}")))?;
        Ok(Self { descriptor, ended, ends })
    }

    /// Relays until either ends.
    pub(super) fn run(self, owner: &Arc<Entry>) {
        let Self { descriptor, ended, ends } = self;
        let (entry, exit) = (owner.clone(), owner.exit.clone());
        owner.own_relay(callback::run(async move {
            // How it ended is for others to know.
            let _ = exit.wait().await;
            drop(ends);
        }));
        owner.own_relay(callback::run(async move {
            loop {
                match read(&descriptor, &ended) {
                    Ok(Some(bytes)) if !bytes.is_empty() => {
                        // The process has ended, or closed its standard input.
                        if entry.write_stdin_all(bytes).await.is_err() {
                            return;
                        }
                    }
                    Ok(Some(_)) => return entry.close_stdin(),
                    Ok(None) => return,
                    Err(error) => {
                        tracing::warn!(%error, "standard input can no longer be relayed and is closed");
                        return entry.close_stdin();
                    }
                }
            }
        }));
    }
}

/// The next bytes, none at the end; `None` once the process has ended. Waits.
fn read(descriptor: &OwnedFd, ended: &io::PipeReader) -> rustix::io::Result<Option<Bytes>> {
    loop {
        let mut watched = [PollFd::new(descriptor, PollFlags::IN), PollFd::new(ended, PollFlags::IN)];
        match poll(&mut watched, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
        if !watched[1].revents().is_empty() {
            return Ok(None);
        }
        if watched[0].revents().is_empty() {
            continue;
        }
        let mut buffer = vec![0; READ_BYTES];
        match rustix::io::read(descriptor, &mut buffer) {
            Ok(len) => {
                buffer.truncate(len);
                return Ok(Some(buffer.into()));
            }
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(errno) => return Err(errno),
        }
    }
}
