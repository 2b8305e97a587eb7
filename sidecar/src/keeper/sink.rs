//! What a keeper has seen, on its way to the sidecar.
//!
//! Whoever sees something never waits for the sidecar: a thread of its own sends. What comes in a row goes together; an
//! end that somebody waits for is sent at once.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use agentvm_wire::id::ProcessId;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use super::messages::{MAX_BATCH_BYTES, Told};
use super::sighting::{Loss, Sighting, What};
use crate::packet;

/// How long the first of a row waits for others, at most.
const ROW: Duration = Duration::from_millis(10);

/// Sightings that wait for the sidecar; more are counted, and told as lost.
pub(super) const MAX_WAITING: usize = 64 << 10;

/// Bytes of those, about.
const MAX_WAITING_BYTES: usize = 16 << 20;

/// Where sightings go.
#[derive(Debug)]
pub(super) struct Sink {
    waiting: Mutex<Waiting>,
    /// Rings for the first after a while, and when a row must not wait.
    changed: Condvar,
    socket: Arc<OwnedFd>,
}

#[derive(Debug, Default)]
struct Waiting {
    sightings: Vec<Sighting>,
    bytes: usize,
    /// Of what a process did.
    lost: u64,
    urgent: bool,
    /// Who sends sleeps until the first of a row comes.
    idle: bool,
}

impl Sink {
    pub(super) fn new(socket: Arc<OwnedFd>) -> Self {
        Self { waiting: Mutex::default(), changed: Condvar::new(), socket }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells it soon, with what comes right behind.
    pub(super) fn tell(&self, sighting: Sighting) {
        self.add(sighting, false);
    }

    /// Tells it, and all before, at once.
    pub(super) fn tell_now(&self, sighting: Sighting) {
        self.add(sighting, true);
    }

    /// Tells the end of somebody; that of a tree's root at once, since that one's parent is told next.
    pub(super) fn tell_end(&self, saw: Sighting, is_root: bool) {
        self.add(saw, is_root);
    }

    /// Something was not seen, for want of descriptors or memory.
    pub(super) fn lose(&self, tree: ProcessId) {
        self.tell(Sighting::Lost { tree: Some(tree), loss: Loss::TooMany, count: 1 });
    }

    fn add(&self, sighting: Sighting, urgent: bool) {
        let mut waiting = self.lock();
        if waiting.sightings.last_mut().is_some_and(|last| last.absorb(&sighting)) {
            return;
        }
        let bytes = size(&sighting);
        let full = waiting.sightings.len() >= MAX_WAITING || waiting.bytes + bytes > MAX_WAITING_BYTES;
        // Of beginning and end of a tree there are never many, and they are waited for.
        if full && matches!(sighting, Sighting::Saw { .. }) {
            waiting.lost += 1;
            return;
        }
        if waiting.lost > 0 {
            let count = std::mem::take(&mut waiting.lost);
            waiting.sightings.push(Sighting::Lost { tree: None, loss: Loss::Overflow, count });
        }
        waiting.sightings.push(sighting);
        waiting.bytes += bytes;
        waiting.urgent |= urgent;
        if waiting.idle || urgent || waiting.bytes >= MAX_BATCH_BYTES {
            self.changed.notify_one();
        }
    }

    /// Says something else than what was seen; false once the sidecar is gone.
    pub(super) fn say(&self, told: &Told, descriptors: &[std::os::fd::BorrowedFd<'_>]) -> bool {
        loop {
            match packet::send(&self.socket, &packet::encode(told), descriptors) {
                Ok(()) => return true,
                Err(Errno::AGAIN | Errno::NOBUFS | Errno::NOMEM | Errno::TOOMANYREFS) => {
                    let _ = poll(&mut [PollFd::new(&self.socket, PollFlags::OUT)], None);
                }
                Err(_) => return false,
            }
        }
    }

    /// Sends until the sidecar is gone.
    pub(super) fn run(&self) {
        loop {
            let sightings = self.take();
            for batch in batches(sightings) {
                if !self.say(&Told::Sightings(batch), &[]) {
                    return;
                }
            }
        }
    }

    /// Waits for a row. Behind one the next is waited for by time alone, which costs whoever sees something nothing.
    fn take(&self) -> Vec<Sighting> {
        let is_short = |waiting: &mut Waiting| !waiting.urgent && waiting.bytes < MAX_BATCH_BYTES;
        let mut waiting = self.lock();
        loop {
            let row = self.changed.wait_timeout_while(waiting, ROW, is_short);
            (waiting, _) = row.unwrap_or_else(PoisonError::into_inner);
            if !waiting.sightings.is_empty() {
                (waiting.bytes, waiting.urgent) = (0, false);
                return std::mem::take(&mut waiting.sightings);
            }
            waiting.idle = true;
            let first = self.changed.wait_while(waiting, |waiting| waiting.sightings.is_empty());
            waiting = first.unwrap_or_else(PoisonError::into_inner);
            waiting.idle = false;
        }
    }
}

/// Cuts a row into pieces that each fit into a message.
fn batches(sightings: Vec<Sighting>) -> impl Iterator<Item = Vec<Sighting>> {
    let mut left = sightings.into_iter().peekable();
    std::iter::from_fn(move || {
        let mut bytes = size(left.peek()?);
        let mut batch = vec![left.next()?];
        while let Some(next) = left.next_if(|next| bytes + size(next) <= MAX_BATCH_BYTES) {
            bytes += size(&next);
            batch.push(next);
        }
        Some(batch)
    })
}

/// Bytes that a sighting takes at most: what it holds of text, a length for each piece of it, and some numbers.
fn size(sighting: &Sighting) -> usize {
    const NUMBERS: usize = 96;
    NUMBERS
        + match sighting {
            Sighting::Saw { what: What::Executed(executed), .. } => {
                let argv = executed.argv.iter().map(|arg| arg.len() + 2).sum::<usize>();
                executed.path.len() + executed.cwd.len() + argv
            }
            Sighting::Saw { what: What::File(file), .. } => {
                file.path.len() + file.to.as_ref().map_or(0, Vec::len)
            }
            Sighting::Saw { what: What::Network(_), .. } => 128,
            _ => 0,
        }
}
