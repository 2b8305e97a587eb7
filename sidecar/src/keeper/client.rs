//! The sidecar's side of a keeper: [`Keeper`] asks, [`Sightings`] come out.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use agentvm_wire::id::ProcessId;
use rustix::io::Errno;
use rustix::net::RecvFlags;
use rustix::net::sockopt::set_socket_passcred;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::process::{Child, Command};
use tokio::time::{Interval, MissedTickBehavior, interval};

use super::listeners::Listeners;
use super::messages::{Request, Told};
use super::sighting::{Orders, Running, Sighting};
use crate::launch::KEEPER_NAME;
use crate::packet::{self, Packet};
use crate::sys::reactor::watch_shared;

/// A keeper that says nothing for so long is killed.
const SILENCE: Duration = Duration::from_secs(1);

/// A running keeper. It ends when this and its [`Sightings`] are dropped.
#[derive(Debug)]
pub struct Keeper {
    socket: Arc<OwnedFd>,
    pidfd: Arc<OwnedFd>,
}

/// What a keeper sees.
#[derive(Debug)]
pub struct Sightings {
    socket: AsyncFd<Arc<OwnedFd>>,
    pidfd: Arc<OwnedFd>,
    buffer: Vec<u8>,
    /// It has not answered since the last time it was asked.
    asked: bool,
    ticks: Interval,
    ended: bool,
    listeners: Listeners,
    /// Collected by the runtime once it has ended.
    _child: Child,
}

impl Keeper {
    /// Starts one. Needs a tokio runtime with its time enabled. Blocks for the time of a fork and an exec.
    ///
    /// It is executed by the sidecar rather than forked by a zygote, so that every kind of VM has the same: whoever made a
    /// user namespace has all rights over it and what is inside.
    ///
    /// # Errors
    /// There can be no other process, or no socket to it.
    pub fn start(orders: &Orders) -> io::Result<(Self, Sightings)> {
        let (ours, theirs) = packet::pair()?;
        let child = Command::new("/proc/self/exe")
            .arg0(KEEPER_NAME)
            .env_clear()
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let pid = child.id().and_then(|pid| Pid::from_raw(pid.cast_signed())).ok_or(Errno::SRCH)?;
        let pidfd = Arc::new(pidfd_open(pid, PidfdFlags::empty())?);
        packet::send(&ours, &packet::encode(orders), &[])?;
        let socket = Arc::new(ours);
        let mut ticks = interval(SILENCE);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let sightings = Sightings {
            socket: watch_shared(socket.clone(), Interest::READABLE)?,
            pidfd: pidfd.clone(),
            buffer: vec![0; packet::MAX_BYTES],
            asked: false,
            ticks,
            ended: false,
            listeners: Listeners::default(),
            _child: child,
        };
        Ok((Self { socket, pidfd }, sightings))
    }

    /// Lets it expect a process. What is returned goes into that one's [`StartSpec`](crate::init::StartSpec), which must be
    /// sent afterwards. [`Sighting::Watched`] or [`Sighting::Unwatched`] follows, unless it is not started or is given up.
    ///
    /// # Errors
    /// The keeper is gone, or has not taken what it was asked before.
    pub fn expect(&self, tree: ProcessId) -> io::Result<OwnedFd> {
        let (keepers, childs) = packet::pair()?;
        set_socket_passcred(&keepers, true)?;
        packet::send(&self.socket, &packet::encode(&Request::Expect { tree }), &[keepers.as_fd()])?;
        Ok(childs)
    }

    /// Has it take a tree that runs already. [`Sighting::Adopted`], [`Sighting::Unwatched`] or [`Sighting::Done`] follows.
    ///
    /// # Errors
    /// The keeper is gone, or has not taken what it was asked before; or the tree has too many members without a parent.
    pub fn adopt(&self, tree: ProcessId, running: Running) -> io::Result<()> {
        Ok(packet::send(&self.socket, &packet::encode(&Request::Adopt { tree, running }), &[])?)
    }

    /// Ends it at once; [`Sightings::next`] tells when it has.
    pub fn kill(&self) {
        signal(&self.pidfd, Signal::KILL);
    }

    #[cfg(test)]
    pub(crate) fn signal(&self, which: Signal) {
        signal(&self.pidfd, which);
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
    }
}

impl Sightings {
    /// What was seen next, in order; `None` once the keeper is gone. One that is silent is killed while this is awaited.
    ///
    /// Cancel safety: safe.
    pub async fn next(&mut self) -> Option<Vec<Sighting>> {
        while !self.ended {
            tokio::select! {
                ready = self.socket.readable() => match ready {
                    Ok(mut ready) => match receive(&self.socket, &mut self.buffer) {
                        Err(Errno::AGAIN) => ready.clear_ready(),
                        told => {
                            if let Some(sightings) = self.hear(told) {
                                return Some(sightings);
                            }
                        }
                    },
                    Err(_) => self.end(),
                },
                _ = self.ticks.tick() => match receive(&self.socket, &mut self.buffer) {
                    Err(Errno::AGAIN) if self.asked => {
                        tracing::warn!("a keeper is silent");
                        signal(&self.pidfd, Signal::KILL);
                    }
                    Err(Errno::AGAIN) => self.ask(),
                    // What came while nobody looked is an answer, too.
                    told => {
                        if let Some(sightings) = self.hear(told) {
                            return Some(sightings);
                        }
                    }
                },
            }
        }
        None
    }

    fn hear(&mut self, told: rustix::io::Result<Option<Packet<Told>>>) -> Option<Vec<Sighting>> {
        self.asked = false;
        match told {
            Ok(Some(Packet { message: Told::Sightings(sightings), .. })) => return Some(sightings),
            Ok(Some(Packet { message: Told::Listener, descriptors })) => self.listeners.add(descriptors),
            Ok(Some(_)) => {}
            Ok(None) | Err(_) => self.end(),
        }
        None
    }

    fn ask(&mut self) {
        self.asked = true;
        // One that has no room for it is asked already.
        let _ = packet::send(self.socket.get_ref(), &packet::encode(&Request::Ping), &[]);
    }

    fn end(&mut self) {
        self.ended = true;
        signal(&self.pidfd, Signal::KILL);
        std::mem::take(&mut self.listeners).answer();
    }
}

impl Drop for Sightings {
    /// What is watched runs on.
    fn drop(&mut self) {
        if !self.ended {
            self.end();
        }
    }
}

fn receive(socket: &AsyncFd<Arc<OwnedFd>>, buffer: &mut [u8]) -> rustix::io::Result<Option<Packet<Told>>> {
    packet::receive(socket.get_ref(), buffer, RecvFlags::DONTWAIT)
}

fn signal(pidfd: &OwnedFd, which: Signal) {
    // Fails only if it has ended already.
    let _ = pidfd_send_signal(pidfd, which);
}
