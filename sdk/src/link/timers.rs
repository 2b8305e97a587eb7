//! Timers that need no runtime of the program: they run on the link's thread.
//!
//! Nothing is armed, and nobody woken, unless a call has asked for a time. The lock is a leaf: nothing else is locked
//! while it is held.

use std::{
    collections::BTreeMap,
    sync::{Arc, MutexGuard, Weak},
    time::{Duration, Instant},
};

use tokio::{sync::oneshot, time::sleep_until};

use super::Link;
use crate::process::entry::Entry;

/// What is due when, by the monotonic clock. One for each process with a timeout and for each call that waits: their
/// owners take them out again.
#[derive(Debug, Default)]
pub(super) struct Timers {
    due: BTreeMap<(Instant, u64), Due>,
    made: u64,
}

#[derive(Debug)]
enum Due {
    Call(oneshot::Sender<()>),
    Overdue(Weak<Entry>),
}

/// A timer that is armed until it is dropped.
#[derive(Debug)]
pub(crate) struct Timer {
    link: Weak<Link>,
    key: (Instant, u64),
}

impl Drop for Timer {
    fn drop(&mut self) {
        if let Some(link) = self.link.upgrade() {
            link.timers().due.remove(&self.key);
        }
    }
}

impl Link {
    /// Resolves after a while; at once if the link is dead. Cancel safe.
    pub(crate) async fn sleep(self: &Arc<Self>, duration: Duration) {
        let (sender, receiver) = oneshot::channel();
        let _timer = self.arm(duration, Due::Call(sender));
        // An error means that the link has died.
        let _ = receiver.await;
    }

    /// Gives a process up after a while.
    pub(crate) fn give_up_after(self: &Arc<Self>, duration: Duration, entry: &Arc<Entry>) -> Timer {
        self.arm(duration, Due::Overdue(Arc::downgrade(entry)))
    }

    fn arm(self: &Arc<Self>, duration: Duration, due: Due) -> Timer {
        /// As good as never, and still a moment that the clock can tell.
        const CENTURY: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);
        let mut timers = self.timers();
        timers.made += 1;
        let key = (Instant::now() + duration.min(CENTURY), timers.made);
        timers.due.insert(key, due);
        let is_first = timers.due.first_key_value().is_some_and(|(first, _)| *first == key);
        drop(timers);
        if self.ended().is_some() {
            // Nobody would ring it.
            self.drop_timers();
        } else if is_first {
            self.timers_changed.notify_one();
        }
        Timer { link: Arc::downgrade(self), key }
    }

    /// Rings what is due, for as long as it is polled.
    pub(super) async fn keep_time(&self) {
        loop {
            let next = self.timers().due.first_key_value().map(|((at, _), _)| *at);
            tokio::select! {
                () = async { sleep_until(next.expect("there is one").into()).await }, if next.is_some() => {}
                () = self.timers_changed.notified() => {}
            }
            while let Some(due) = self.take_due() {
                match due {
                    // Whoever dropped the receiver does not want to know.
                    Due::Call(sender) => drop(sender.send(())),
                    Due::Overdue(entry) => {
                        if let Some(entry) = entry.upgrade() {
                            entry.overdue();
                        }
                    }
                }
            }
        }
    }

    /// The link is dead: whoever waits is told by that.
    pub(super) fn drop_timers(&self) {
        let dropped = std::mem::take(&mut self.timers().due);
        drop(dropped);
    }

    fn timers(&self) -> MutexGuard<'_, Timers> {
        self.timers.lock().expect("no code panics under this lock")
    }

    fn take_due(&self) -> Option<Due> {
        let mut timers = self.timers();
        let first = timers.due.first_entry()?;
        (first.key().0 <= Instant::now()).then(|| first.remove())
    }
}
