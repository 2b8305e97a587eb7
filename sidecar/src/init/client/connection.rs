//! The socket and the pidfd behind both halves, and what waits to be sent.

use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use agentvm_wire::id::ProcessId;
use rustix::io::Errno;
use rustix::net::RecvFlags;
use rustix::process::{Signal, pidfd_send_signal};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, oneshot};

use crate::init::helper::MAX_HELPERS;
use crate::init::messages::{ReadOutcome, Reply, Request, Start};
use crate::isolation::cgroup::Group;
use crate::isolation::uid_ranges::UidRange;
use crate::packet::{self, Packet};
use crate::supervisor::Supervisor;
use crate::sys::reactor::{room, watch};

/// How soon a send is tried again that failed for want of kernel memory or descriptors (`unix(7)`, `ETOOMANYREFS`).
const RETRY: Duration = Duration::from_millis(10);

/// One VM's init, as the sidecar holds it.
#[derive(Debug)]
pub(crate) struct Connection {
    socket: AsyncFd<OwnedFd>,
    pidfd: AsyncFd<OwnedFd>,
    ending: Ending,
    outbox: Mutex<Outbox>,
    /// One for each helper of init's: it refuses what goes beyond.
    turns: Arc<Semaphore>,
    /// Rings when the outbox stops being empty, or holds something to tell.
    changed: Notify,
    /// Given back once the VM is gone.
    lease: Mutex<Option<Lease>>,
}

/// How a VM is ended; its pidfd tells when it has.
#[derive(Debug)]
pub(crate) enum Ending {
    /// The pidfd is init's, and the kernel ends all with it.
    Init,
    /// The pidfd is that of a supervisor, which ends all.
    Supervisor(Supervisor),
}

/// What a VM has of the host for itself.
#[derive(Debug)]
pub(crate) struct Lease {
    /// Its groups.
    group: Group,
    /// Its uids.
    _range: Option<UidRange>,
}

impl Lease {
    pub(crate) fn new(range: Option<UidRange>, group: Group) -> Self {
        Self { group, _range: range }
    }
}

/// What could not be sent at once. Filled by `Commands`, emptied while `Events::next` is awaited. Its bound is the
/// caller's: one start for each process it counts, and one signal for each it coalesces.
#[derive(Debug, Default)]
struct Outbox {
    packets: VecDeque<(Vec<u8>, Vec<OwnedFd>)>,
    /// Starts that never left: process, why.
    failed: Vec<(ProcessId, Errno)>,
    readings: HashMap<u64, Expected>,
    /// The child that waits for a start, by its number.
    spare: Option<(u32, OwnedFd)>,
    /// Starts and signals that init has not answered.
    unanswered: usize,
    last_reading: u64,
    ended: bool,
}

/// An answer that is awaited; whoever asked may have gone, but the helper is at work until it comes.
#[derive(Debug)]
struct Expected {
    sender: oneshot::Sender<ReadOutcome>,
    _turn: OwnedSemaphorePermit,
}

impl Connection {
    pub(crate) fn new(
        socket: AsyncFd<OwnedFd>,
        pidfd: OwnedFd,
        ending: Ending,
        lease: Lease,
    ) -> std::io::Result<Self> {
        Ok(Self {
            socket,
            pidfd: watch(pidfd, Interest::READABLE)?,
            ending,
            outbox: Mutex::default(),
            turns: Arc::new(Semaphore::new(MAX_HELPERS)),
            changed: Notify::new(),
            lease: Mutex::new(Some(lease)),
        })
    }

    fn outbox(&self) -> MutexGuard<'_, Outbox> {
        // Nothing panics while it holds the lock.
        self.outbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a request now, or keeps it behind those that already wait.
    pub(super) fn send(&self, request: &Request, descriptors: Vec<OwnedFd>) {
        self.send_from(&mut self.outbox(), request, descriptors);
    }

    /// Sends a request that is answered in its time.
    pub(super) fn ask(&self, request: &Request) {
        let mut outbox = self.outbox();
        outbox.unanswered += 1;
        self.send_from(&mut outbox, request, Vec::new());
    }

    /// Sends a start, and first to the spare, if there is one and nothing else comes before.
    pub(super) fn send_start(&self, process: ProcessId, start: Start, descriptors: Vec<OwnedFd>) {
        let mut outbox = self.outbox();
        let is_next = outbox.unanswered == 0 && outbox.packets.is_empty();
        let spare = outbox.spare.take_if(|_| is_next).and_then(|(spare, socket)| {
            let descriptors: Vec<BorrowedFd<'_>> = descriptors.iter().map(OwnedFd::as_fd).collect();
            // It may have gone already; whether it has received this, init finds out.
            packet::send(&socket, &packet::encode(&start), &descriptors).is_ok().then_some(spare)
        });
        outbox.unanswered += 1;
        self.send_from(&mut outbox, &Request::Start { process, start, spare }, descriptors);
    }

    fn send_from(&self, outbox: &mut Outbox, request: &Request, descriptors: Vec<OwnedFd>) {
        outbox.packets.push_back((packet::encode(request), descriptors));
        if outbox.packets.len() == 1 {
            self.flush(outbox);
        }
        if !outbox.packets.is_empty() {
            self.changed.notify_one();
        }
    }

    /// Init has answered a start or a signal.
    pub(super) fn answered(&self) {
        let mut outbox = self.outbox();
        outbox.unanswered = outbox.unanswered.saturating_sub(1);
    }

    /// There is a spare.
    pub(super) fn keep_spare(&self, spare: u32, socket: OwnedFd) {
        self.outbox().spare = Some((spare, socket));
    }

    /// There is not any more.
    pub(super) fn drop_spare(&self, spare: u32) {
        self.outbox().spare.take_if(|(kept, _)| *kept == spare);
    }

    /// Notes a start that cannot be sent at all.
    pub(super) fn fail_start(&self, process: ProcessId, errno: Errno) {
        self.outbox().failed.push((process, errno));
        self.changed.notify_one();
    }

    pub(super) fn take_failed_starts(&self) -> Vec<(ProcessId, Errno)> {
        std::mem::take(&mut self.outbox().failed)
    }

    fn flush(&self, outbox: &mut Outbox) {
        while let Some((bytes, descriptors)) = outbox.packets.front() {
            let borrowed: Vec<BorrowedFd<'_>> = descriptors.iter().map(OwnedFd::as_fd).collect();
            match packet::send(self.socket.get_ref(), bytes, &borrowed) {
                Ok(()) => drop(outbox.packets.pop_front()),
                Err(Errno::AGAIN | Errno::NOBUFS | Errno::NOMEM | Errno::TOOMANYREFS) => return,
                // Init has gone: nothing will be sent any more, and `Ended` is what the caller gets.
                Err(_) => outbox.packets.clear(),
            }
        }
    }

    /// Waits until there may be something to receive, sending what waits meanwhile. True once the VM is gone.
    ///
    /// Cancel safety: safe.
    pub(super) async fn wait_and_flush(&self) -> bool {
        loop {
            let (waiting, told) = {
                let outbox = self.outbox();
                (!outbox.packets.is_empty(), !outbox.failed.is_empty())
            };
            if told {
                return false;
            }
            tokio::select! {
                ready = self.pidfd.readable() => {
                    // The VM is gone, or the runtime is; either way nothing else will come.
                    drop(ready);
                    self.lease.lock().unwrap_or_else(PoisonError::into_inner).take();
                    return true;
                }
                ready = self.socket.readable() => match ready {
                    Ok(mut ready) => match self.peek() {
                        Peek::Message => return false,
                        // Readable for good; the pidfd follows.
                        Peek::End => {
                            let _ = self.pidfd.readable().await;
                            self.lease.lock().unwrap_or_else(PoisonError::into_inner).take();
                            return true;
                        }
                        Peek::Nothing => ready.clear_ready(),
                    },
                    Err(_) => return true,
                },
                Ok(()) = room(self.socket.get_ref()), if waiting => self.flush(&mut self.outbox()),
                // Memory and descriptors on their way have no readiness to wait for.
                () = tokio::time::sleep(RETRY), if waiting => {
                    self.flush(&mut self.outbox());
                }
                () = self.changed.notified() => {}
            }
        }
    }

    fn peek(&self) -> Peek {
        let flags = RecvFlags::DONTWAIT | RecvFlags::PEEK;
        match rustix::net::recv(self.socket.get_ref(), &mut [0; 1], flags) {
            Ok((_, 0)) => Peek::End,
            Ok(_) => Peek::Message,
            Err(Errno::AGAIN | Errno::INTR) => Peek::Nothing,
            Err(_) => Peek::End,
        }
    }

    /// The next reply that has arrived.
    pub(super) fn receive(&self) -> Result<Option<Packet<Reply>>, Errno> {
        let mut buffer = [0; packet::MAX_BYTES];
        match packet::receive(self.socket.get_ref(), &mut buffer, RecvFlags::DONTWAIT) {
            Err(Errno::AGAIN) => Ok(None),
            received => received,
        }
    }

    /// The VM's groups; nothing once it is gone.
    pub(super) fn with_group<T>(&self, ask: impl FnOnce(&Group) -> T) -> Option<T> {
        let lease = self.lease.lock().unwrap_or_else(PoisonError::into_inner);
        lease.as_ref().map(|lease| ask(&lease.group))
    }

    pub(super) fn kill(&self) {
        match &self.ending {
            // Fails only if it has ended already.
            Ending::Init => _ = pidfd_send_signal(self.pidfd.get_ref(), Signal::KILL),
            Ending::Supervisor(supervisor) => supervisor.end(self.pidfd.get_ref()),
        }
    }

    /// When it is its turn, a fresh token, and what resolves when its answer comes; to an error if the VM ends before.
    pub(super) async fn expect_reading(&self) -> (u64, oneshot::Receiver<ReadOutcome>) {
        let turn = self.turns.clone().acquire_owned().await.expect("nobody closes it");
        let (sender, receiver) = oneshot::channel();
        let mut outbox = self.outbox();
        outbox.last_reading += 1;
        let token = outbox.last_reading;
        if !outbox.ended {
            outbox.readings.insert(token, Expected { sender, _turn: turn });
        }
        (token, receiver)
    }

    pub(super) fn finish_reading(&self, token: u64, outcome: ReadOutcome) {
        if let Some(Expected { sender, _turn }) = self.outbox().readings.remove(&token) {
            // The caller may have stopped waiting.
            let _ = sender.send(outcome);
        }
    }

    pub(super) fn abandon_readings(&self) {
        let mut outbox = self.outbox();
        outbox.ended = true;
        outbox.readings.clear();
    }
}

enum Peek {
    Message,
    Nothing,
    End,
}

impl Drop for Connection {
    /// The closed socket ends a well-behaved init; this ends any.
    fn drop(&mut self) {
        self.kill();
    }
}
