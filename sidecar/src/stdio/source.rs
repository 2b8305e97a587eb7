//! One output of a process: the reading end of its pipe.
//!
//! It is read only when it is its stream's turn, so a process whose reader is slow feels ordinary back-pressure. Once
//! nobody wants the output any more it is read and discarded: the process neither blocks nor dies of SIGPIPE.
//!
//! It is not watched at once. Most processes end before that would be worth it, and the end of each output would wake us
//! while the process is still dying, once more than its exit does.

use std::{
    collections::VecDeque,
    fs::File,
    future::pending,
    io,
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
    sync::{
        Arc, LazyLock, Mutex, OnceLock,
        atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use agentvm_wire::id::StreamId;
use rustix::{
    event::{PollFd, PollFlags, poll},
    pipe::SpliceFlags,
};
use tokio::{
    io::{Interest, unix::AsyncFd},
    sync::Notify,
    time::{sleep, timeout},
};

use super::outflow::{Outflow, Taken};
use crate::{link::Link, sys::reactor::watch_shared};

/// Full reads in a row after which a pipe is worth growing.
const FULL_READS: u32 = 8;
/// What it grows to, where the user's share of pipe pages allows.
const GROWN_BYTES: usize = 1 << 20;
/// How long a process runs before its outputs are watched.
const UNWATCHED: Duration = Duration::from_millis(2);
/// Between two looks at a pipe that cannot be watched, for want of kernel memory (`epoll_ctl(2)`).
const RETRY: Duration = Duration::from_millis(10);

#[derive(Debug)]
pub(crate) struct Source {
    stream: StreamId,
    pipe: Arc<OwnedFd>,
    watched: OnceLock<AsyncFd<Arc<OwnedFd>>>,
    mode: AtomicU8,
    sent: AtomicU64,
    /// Taken out of the pipe when its process ended: at most what a pipe holds.
    held: Mutex<VecDeque<u8>>,
    full_reads: AtomicU32,
    /// The writer has emptied the pipe, the mode has changed, or the process has ended: the pump looks again.
    rearm: Notify,
    /// A chunk was read, or the end was met.
    activity: Arc<Notify>,
}

/// Moves what a pipe holds to nowhere, without copying it, splice(2). 0 at its end.
fn discard(pipe: BorrowedFd<'_>) -> io::Result<usize> {
    static NOWHERE: LazyLock<io::Result<File>> =
        LazyLock::new(|| File::options().write(true).open("/dev/null"));
    let nowhere = NOWHERE.as_ref().map_err(|error| io::Error::from(error.kind()))?;
    Ok(rustix::pipe::splice(pipe, None, nowhere, None, GROWN_BYTES, SpliceFlags::NONBLOCK)?)
}

const SENDING: u8 = 0;
const TO_NOWHERE: u8 = 1;
const ENDED: u8 = 2;

impl Source {
    pub(crate) fn new(stream: StreamId, pipe: OwnedFd, activity: Arc<Notify>) -> Arc<Self> {
        Arc::new(Self {
            stream,
            pipe: Arc::new(pipe),
            watched: OnceLock::new(),
            mode: AtomicU8::new(SENDING),
            sent: AtomicU64::new(0),
            held: Mutex::default(),
            full_reads: AtomicU32::new(0),
            rearm: Notify::new(),
            activity,
        })
    }

    pub(crate) fn stream(&self) -> StreamId {
        self.stream
    }

    /// Announces the pipe whenever it has something; ends with the output, or discards the rest of it.
    pub(crate) async fn pump(self: Arc<Self>, link: Arc<Link>) {
        let _ = timeout(UNWATCHED, self.rearm.notified()).await;
        while self.mode() == SENDING {
            link.ready(self.stream);
            self.rearm.notified().await;
            if self.mode() == SENDING {
                self.readable().await;
            }
        }
        while self.mode() == TO_NOWHERE {
            match self.try_io(|pipe| discard(pipe.as_fd())) {
                // Others have their turn too.
                Ok(1..) => tokio::task::yield_now().await,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.readable().await,
                Ok(0) | Err(_) => return,
            }
        }
    }

    /// Waits until there may be something to read. What is ready stays so until a read has found the pipe empty.
    async fn readable(&self) {
        match self.watch() {
            Ok(watched) => match watched.readable().await {
                Ok(mut ready) => ready.retain_ready(),
                // The runtime is going down, and this with it.
                Err(_) => pending().await,
            },
            Err(_) => sleep(RETRY).await,
        }
    }

    /// All is polled on one thread, so nobody else does this meanwhile.
    fn watch(&self) -> io::Result<&AsyncFd<Arc<OwnedFd>>> {
        if let Some(watched) = self.watched.get() {
            return Ok(watched);
        }
        let watched = watch_shared(self.pipe.clone(), Interest::READABLE)?;
        Ok(self.watched.get_or_init(|| watched))
    }

    fn try_io<T>(&self, mut io: impl FnMut(&OwnedFd) -> io::Result<T>) -> io::Result<T> {
        match self.watched.get() {
            Some(watched) => watched.try_io(Interest::READABLE, |pipe| io(pipe)),
            None => io(&self.pipe),
        }
    }

    /// A process that fills its pipe again and again gets a bigger one: fewer switches between it and us.
    fn grow_if_full(&self, full: bool) {
        if !full {
            self.full_reads.store(0, Ordering::Relaxed);
        } else if self.full_reads.fetch_add(1, Ordering::Relaxed) + 1 == FULL_READS {
            // Refused where the user has used up its share: the pipe stays as it is.
            let _ = rustix::pipe::fcntl_setpipe_size(&self.pipe, GROWN_BYTES);
        }
    }

    /// Its process has ended, and that is about to be told.
    pub(crate) fn process_ended(&self) {
        self.rearm.notify_one();
    }

    /// Up to where the stream holds what was written so far: what was sent and what lies in the pipe. Where somebody
    /// else still holds the pipe, what lies in it is taken out: they may have opened it for reading, and would make the
    /// stream end early.
    pub(crate) fn settle(&self) -> u64 {
        let mut held = self.held.lock().expect("no code panics under this lock");
        let mut waiting = match self.mode() {
            ENDED => 0,
            _ => rustix::io::ioctl_fionread(&self.pipe).unwrap_or(0),
        };
        if waiting > 0 && self.is_open() {
            let mut bytes = vec![0; usize::try_from(waiting).unwrap_or(GROWN_BYTES)];
            let read = rustix::io::read(&self.pipe, &mut bytes).unwrap_or(0);
            held.extend(&bytes[..read]);
            waiting = 0;
        }
        self.sent.load(Ordering::Relaxed) + held.len() as u64 + waiting
    }

    /// What was taken out of the pipe before.
    fn take_held(&self, buffer: &mut [u8]) -> usize {
        let mut held = self.held.lock().expect("no code panics under this lock");
        let taken = held.len().min(buffer.len());
        buffer.iter_mut().zip(held.drain(..taken)).for_each(|(to, byte)| *to = byte);
        taken
    }

    /// Whether somebody still holds the pipe open for writing.
    pub(crate) fn is_open(&self) -> bool {
        if self.mode() == ENDED {
            return false;
        }
        let mut fds = [PollFd::new(&self.pipe, PollFlags::IN)];
        match poll(&mut fds, Some(&rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 })) {
            Ok(_) => !fds[0].revents().contains(PollFlags::HUP),
            Err(_) => true,
        }
    }

    /// Whether its output no longer goes to the client.
    pub(crate) fn is_discarded(&self) -> bool {
        self.mode() == TO_NOWHERE
    }

    fn mode(&self) -> u8 {
        self.mode.load(Ordering::Relaxed)
    }

    fn switch(&self, mode: u8) {
        self.mode.fetch_max(mode, Ordering::Relaxed);
        self.rearm.notify_one();
        self.activity.notify_one();
    }
}

impl Outflow for Source {
    fn take(&self, buffer: &mut [u8]) -> Taken {
        let room = buffer.len();
        let read = match self.take_held(buffer) {
            0 => self.try_io(|pipe| Ok(rustix::io::read(pipe, &mut *buffer)?)),
            held => Ok(held),
        };
        let taken = match read {
            Ok(0) => Taken::End,
            Ok(read) => Taken::Bytes(read),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Taken::Nothing,
            Err(_) => Taken::End,
        };
        match taken {
            Taken::Bytes(read) => {
                self.sent.fetch_add(read as u64, Ordering::Relaxed);
                self.grow_if_full(read == room);
                self.activity.notify_one();
            }
            Taken::End => self.end(),
            Taken::Nothing => self.rearm.notify_one(),
        }
        taken
    }

    /// From now on it goes nowhere.
    fn stop(&self) {
        self.switch(TO_NOWHERE);
    }

    fn end(&self) {
        self.switch(ENDED);
    }
}
