//! The reader: a thread that takes what the kernel tells and hands it to all who observe the host.

#[cfg(test)]
mod tests;

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use agentvm_wire::observer::ObserverEvent;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

use super::Told;
use super::census::Census;
use super::connector::{Connector, MESSAGE_BYTES, Unheard};

/// What waits for one observation; what comes beyond is counted, and told as lost.
const MAX_WAITING: usize = 16 << 10;

/// Messages that are taken before it is looked who else wants to know.
const MESSAGES_IN_A_ROW: usize = 256;

/// The one that runs, if one does.
static RUNNING: Mutex<Weak<Reader>> = Mutex::new(Weak::new());

/// What is told to one observation: first who is there, then what happens. The reader ends with the last of these.
#[derive(Debug)]
pub(crate) struct HostEvents {
    events: mpsc::Receiver<Told>,
    _reader: Arc<Reader>,
}

/// Ends its thread when it is dropped.
#[derive(Debug)]
struct Reader(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    joining: Mutex<Vec<mpsc::Sender<Told>>>,
    over: AtomicBool,
    /// Rings when one of these has changed.
    bell: OwnedFd,
}

/// One observation, as the thread knows it.
struct Listener {
    events: mpsc::Sender<Told>,
    lost: u64,
}

impl HostEvents {
    /// Tells of the host from now on. Blocks for as long as it takes to open a socket.
    pub(crate) fn observe() -> Result<Self, Unheard> {
        let mut running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
        let reader = match running.upgrade() {
            Some(reader) => reader,
            None => Arc::new(Reader::start()?),
        };
        *running = Arc::downgrade(&reader);
        let (sender, events) = mpsc::channel(MAX_WAITING);
        reader.0.joining.lock().unwrap_or_else(PoisonError::into_inner).push(sender);
        reader.0.ring();
        Ok(Self { events, _reader: reader })
    }

    /// What is told next; `None` if the kernel tells no more. Cancel safety: safe.
    pub(crate) async fn next(&mut self) -> Option<Told> {
        self.events.recv().await
    }
}

impl Reader {
    fn start() -> Result<Self, Unheard> {
        let failed = |errno: Errno| Unheard::NoReader(errno.into());
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(failed)?;
        let shared = Arc::new(Shared { joining: Mutex::default(), over: AtomicBool::new(false), bell });
        let connector = Connector::listen()?;
        let of_thread = shared.clone();
        std::thread::Builder::new()
            .name("host-events".to_owned())
            .spawn(move || _ = of_thread.read(&connector))
            .map_err(Unheard::NoReader)?;
        Ok(Self(shared))
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.0.over.store(true, Ordering::Release);
        self.0.ring();
    }
}

impl Shared {
    fn ring(&self) {
        // It fails only if it has rung very often.
        let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
    }

    /// Reads until nobody wants to know, or the kernel tells no more.
    fn read(&self, connector: &Connector) -> rustix::io::Result<()> {
        let (mut census, mut listeners) = (Census::begin()?, Vec::new());
        let mut buffer = vec![0; MESSAGE_BYTES];
        let mut lost = false;
        while !self.over.load(Ordering::Acquire) {
            let mut watched = vec![
                PollFd::new(connector, PollFlags::IN),
                PollFd::from_borrowed_fd(self.bell.as_fd(), PollFlags::IN),
            ];
            watched.extend(census.watched().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
            rustix::io::retry_on_intr(|| poll(&mut watched, census.pause().as_ref()))?;
            let _ = rustix::io::read(&self.bell, &mut [0; 8]);
            self.welcome(&census, &mut listeners);
            for _ in 0..MESSAGES_IN_A_ROW {
                match connector.receive(&mut buffer) {
                    Ok(messages) => messages
                        .into_iter()
                        .flat_map(|message| census.take(message))
                        .for_each(|event| tell(&mut listeners, event)),
                    Err(Errno::NOBUFS) => lost = true,
                    // What was told before is taken by now.
                    Err(Errno::AGAIN) if std::mem::take(&mut lost) => {
                        listeners.retain_mut(|listener| listener.tell(&Told::Lost(0)));
                        census.look_anew().into_iter().for_each(|event| tell(&mut listeners, event));
                    }
                    Err(Errno::AGAIN) => {
                        census.settle().into_iter().for_each(|event| tell(&mut listeners, event));
                        break;
                    }
                    Err(Errno::INTR) => {}
                    Err(errno) => return Err(errno),
                }
            }
        }
        Ok(())
    }

    /// Tells those who are new who is there.
    fn welcome(&self, census: &Census, listeners: &mut Vec<Listener>) {
        let joining = std::mem::take(&mut *self.joining.lock().unwrap_or_else(PoisonError::into_inner));
        if joining.is_empty() {
            return;
        }
        let everybody: Vec<_> =
            census.everybody().into_iter().map(|event| Told::Event(Arc::new(event))).collect();
        for events in joining {
            let mut listener = Listener { events, lost: 0 };
            if everybody.iter().all(|told| listener.tell(told)) {
                listeners.push(listener);
            }
        }
    }
}

fn tell(listeners: &mut Vec<Listener>, event: ObserverEvent) {
    let told = Told::Event(Arc::new(event));
    listeners.retain_mut(|listener| listener.tell(&told));
}

impl Listener {
    /// False if nobody listens any more.
    fn tell(&mut self, told: &Told) -> bool {
        let sent = match self.lost {
            0 => self.events.try_send(told.clone()),
            lost => self.events.try_send(Told::Lost(lost)).and_then(|()| {
                self.lost = 0;
                self.events.try_send(told.clone())
            }),
        };
        match sent {
            Ok(()) => true,
            Err(TrySendError::Full(_)) => {
                self.lost += 1;
                true
            }
            Err(TrySendError::Closed(_)) => false,
        }
    }
}
