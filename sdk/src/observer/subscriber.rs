//! [`ObserverSubscriber`]: one reader of an observation.

use std::{
    future::poll_fn,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use agentvm_wire::observer::ObserverEvent;
use futures_core::Stream;
use futures_util::future::{Either, select};
use tokio::task::coop::poll_proceed;

use super::{
    observation::Observation,
    ring::{CursorId, Read},
};

/// Reads the events of one observation, at its own pace. Implements [`Stream`]; needs no runtime.
///
/// `seq` counts what this subscriber was given, from 1 on and without a hole. One that reads too slowly loses the oldest
/// events and is given one `loss` with their count in their place. It ends (`None`) once everything that was queued is read
/// and nothing will follow: behind `complete`, after [`stop`](Self::stop), or with the VM. Dropping it stops it; with
/// its last subscriber an observation ends, and what it observed goes on unobserved.
///
/// ```no_run
/// # async fn example(vm: &agentvm_sdk::AgentOs) -> Result<(), agentvm_sdk::ClientError> {
/// use agentvm_sdk::{ObserverConfig, ObserverEventKind, SpawnOptions};
///
/// let options = SpawnOptions::new().observe(ObserverConfig::lifecycle());
/// let process = vm.spawn("make", ["test"], options)?;
/// let events = process.observer().expect("it is observed");
/// while let Some(event) = events.recv().await {
///     if let ObserverEventKind::Exited { exit_code, .. } = event.kind {
///         println!("it exited with {exit_code:?}");
///     }
/// }
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct ObserverSubscriber {
    observation: Arc<Observation>,
    cursor: CursorId,
}

impl ObserverSubscriber {
    pub(crate) fn new(observation: Arc<Observation>) -> Self {
        let cursor = observation.subscribe();
        Self { observation, cursor }
    }

    /// Another subscriber of the same observation, from its first event on.
    #[must_use]
    pub fn resubscribe(&self) -> Self {
        Self::new(self.observation.clone())
    }

    /// The next event; `None` once nothing follows. Cancel safe: no event is lost.
    pub async fn recv(&self) -> Option<ObserverEvent> {
        poll_fn(|cx| self.poll_recv(cx)).await
    }

    /// The next event, if it comes in time; `None` also once nothing follows. Cancel safe: no event is lost.
    pub async fn recv_timeout(&self, limit: Duration) -> Option<ObserverEvent> {
        let link = self.observation.link.clone();
        match select(pin!(self.recv()), pin!(link.sleep(limit))).await {
            Either::Left((event, _)) => event,
            Either::Right(((), _)) => None,
        }
    }

    /// The next event, if it is there already.
    pub fn try_recv(&self) -> Option<ObserverEvent> {
        match self.observation.read(self.cursor, None) {
            Read::Event(event) => Some(*event),
            Read::End | Read::Pending => None,
        }
    }

    /// All that are there already.
    pub fn drain(&self) -> Vec<ObserverEvent> {
        std::iter::from_fn(|| self.try_recv()).collect()
    }

    /// Ends it, for all categories: what is queued can still be read, then it ends. Who waits in it is woken at once. A
    /// second time it does nothing.
    pub fn stop(&self) {
        self.observation.stop(self.cursor);
    }

    fn poll_recv(&self, cx: &mut Context<'_>) -> Poll<Option<ObserverEvent>> {
        // A stream that always has more must let its neighbours in the same runtime have their turn.
        let turn = ready!(poll_proceed(cx));
        let event = match self.observation.read(self.cursor, Some(cx.waker())) {
            Read::Event(event) => Some(*event),
            Read::End => None,
            Read::Pending => return Poll::Pending,
        };
        turn.made_progress();
        Poll::Ready(event)
    }
}

impl Stream for ObserverSubscriber {
    type Item = ObserverEvent;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll_recv(cx)
    }
}

impl Drop for ObserverSubscriber {
    fn drop(&mut self) {
        self.observation.unsubscribe(self.cursor);
    }
}
