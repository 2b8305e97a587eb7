//! What the client keeps of one process: its rings, its stdin queue, its life. Shared by the connection driver, which
//! feeds it, and by every handle, which reads it.
//!
//! Locks: an entry's lock is never held while the link's is taken (the other way round it may be). Whatever a change
//! of state entails (credit, wakers, the exit) is collected under the lock and done after it.

mod reading;
mod state;
mod writing;

use std::{
    sync::{Arc, Mutex, MutexGuard, Weak},
    task::Waker,
    time::Duration,
};

use agentvm_wire::{
    id::{ProcessId, StreamId, VmId},
    process::{ExitCause, ProcessExited, ProcessStarted, Signal, SignalTarget, StdioStreams, StreamEnds},
};

use async_task::Task;
use bytes::Bytes;
use tokio::sync::Semaphore;

pub(crate) use self::reading::{Cursors, Next};

use self::state::{Effects, State};
use super::{
    exit::{Exit, Outcome},
    lifecycle::Event,
    retained::Retained,
};
use crate::{
    error::ClientError,
    link::Link,
    observer::Observation,
    stdio::{OutputStream, ring::Ring},
};

/// One process.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) id: ProcessId,
    pub(crate) vm: VmId,
    pub(crate) link: Arc<Link>,
    pub(crate) command: String,
    pub(crate) args: Vec<String>,
    pub(crate) requested_at_ms: u64,
    pub(crate) exit: Exit,
    retained: Arc<Retained>,
    streams: StdioStreams,
    pub(crate) observation: Option<Arc<Observation>>,
    drains: bool,
    /// How long a kill at the timeout may go unconfirmed.
    kill_confirmation: Duration,
    /// Lives while a `Process` handle does: such an entry is never pruned.
    pub(crate) pin: Mutex<Weak<()>>,
    state: Mutex<State>,
    /// What hands its output to callbacks and descriptors, and feeds its input: ends with the streams, at the latest
    /// when the entry is forgotten.
    relays: Mutex<Vec<Task<()>>>,
    /// Writers that wait for room take turns, in the order they came.
    stdin_turn: Semaphore,
}

/// What a new entry is made from.
pub(crate) struct NewEntry {
    pub(crate) id: ProcessId,
    pub(crate) vm: VmId,
    pub(crate) link: Arc<Link>,
    pub(crate) command: String,
    pub(crate) args: Vec<String>,
    pub(crate) streams: StdioStreams,
    pub(crate) observation: Option<Arc<Observation>>,
    pub(crate) drains: bool,
    pub(crate) retained: Arc<Retained>,
    pub(crate) retained_bytes: u64,
    pub(crate) stdin_bytes: u64,
    pub(crate) kill_confirmation: Duration,
}

impl Entry {
    pub(crate) fn new(new: NewEntry) -> Self {
        let state = State::new(new.streams, new.retained_bytes, new.stdin_bytes);
        Self {
            id: new.id,
            vm: new.vm,
            link: new.link,
            command: new.command,
            args: new.args,
            requested_at_ms: crate::now_ms(),
            exit: Exit::new(),
            retained: new.retained,
            streams: new.streams,
            observation: new.observation,
            drains: new.drains,
            kill_confirmation: new.kill_confirmation,
            pin: Mutex::default(),
            state: Mutex::new(state),
            relays: Mutex::default(),
            stdin_turn: Semaphore::new(1),
        }
    }

    // ---- fed by the connection ----

    pub(crate) fn started(&self, started: ProcessStarted) {
        self.update(|state, _| {
            state.started = Some(started);
            state.lifecycle.step(Event::Started)
        });
    }

    /// The start was refused: the message also goes to standard error, as a shell would write it.
    pub(crate) fn start_failed(&self, error: ClientError) {
        self.update(|state, effects| {
            if state.lifecycle.has_ended() {
                return None;
            }
            state.push(OutputStream::Stderr, format!("{error}\n").as_bytes(), effects);
            state.end_streams(effects, Ring::finish);
            state.failure = Some(error.clone());
            state.lifecycle.step(Event::StartFailed(error))
        });
    }

    pub(crate) fn exited(&self, exited: ProcessExited) {
        self.update(|state, effects| {
            state.stdin.abandon(&mut effects.wakers);
            state.backstop = None;
            if exited.cause == ExitCause::Timeout && !self.id.is_exec() {
                // Whoever asked for the timeout waits for no subscriber.
                state.let_subscribers_go(effects);
            }
            let drains = self.drains && exited.output_open;
            let end = exited.end;
            state.lifecycle.step(Event::Exited { status: exited.into(), end, drains })
        });
    }

    pub(crate) fn drained(&self, end: StreamEnds) {
        self.update(|state, _| state.lifecycle.step(Event::Drained(end)));
    }

    pub(crate) fn data(&self, which: OutputStream, payload: &[u8], fin: bool) {
        self.update(|state, effects| {
            state.push(which, payload, effects);
            if fin && let Some(output) = state.output(which) {
                output.ring.finish(&mut effects.wakers);
            }
            None
        });
    }

    /// One output ended incomplete.
    pub(crate) fn output_lost(&self, which: OutputStream) {
        self.update(|state, effects| {
            if let Some(output) = state.output(which) {
                output.ring.lose(&mut effects.wakers);
            }
            None
        });
    }

    /// The VM or the connection is gone: nothing more will come.
    pub(crate) fn lost(&self, error: ClientError) {
        self.update(|state, effects| {
            state.stdin.abandon(&mut effects.wakers);
            let progress = state.progress();
            state.end_streams(effects, Ring::lose);
            if !state.lifecycle.has_ended() {
                state.failure = Some(error.clone());
            }
            let outcome = state.lifecycle.step(Event::Lost { error, progress });
            if matches!(outcome, Some(Ok(_))) {
                state.failure = None;
            }
            outcome
        });
    }

    /// Its timeout is long over, and the sidecar has not told of its end.
    pub(crate) fn overdue(self: &Arc<Self>) {
        // Should the sidecar ever listen again.
        self.signal(Signal::KILL, SignalTarget::Tree);
        let waited = self.kill_confirmation;
        let (stdout, stderr) = (Bytes::new(), Bytes::new());
        self.lost(ClientError::TerminationUnconfirmed { waited, stdout, stderr });
    }

    /// Gives it up when its timeout has passed, and then the time in which a kill must be confirmed.
    pub(crate) fn give_up_after(self: &Arc<Self>, timeout: Duration) {
        let timer = self.link.give_up_after(timeout.saturating_add(self.kill_confirmation), self);
        let mut state = self.lock();
        if !state.lifecycle.has_ended() {
            state.backstop = Some(timer);
        }
    }

    /// Nobody reads standard input any more.
    pub(crate) fn stdin_stopped(&self) {
        self.update(|state, effects| {
            state.stdin.abandon(&mut effects.wakers);
            None
        });
    }

    // ---- used by handles ----

    /// Sends a signal unless the process has ended or the very same one still waits for its answer.
    pub(crate) fn signal(self: &Arc<Self>, signal: Signal, target: SignalTarget) {
        {
            let mut state = self.lock();
            if self.exit.get().is_some() || state.signals.contains(&(signal, target)) {
                return;
            }
            state.signals.push((signal, target));
        }
        self.link.signal(self, signal, target);
    }

    pub(crate) fn signal_answered(&self, signal: Signal, target: SignalTarget) {
        self.lock().signals.retain(|sent| *sent != (signal, target));
    }

    /// Owns what relays one of its streams.
    pub(crate) fn own_relay(&self, relay: Task<()>) {
        self.relays.lock().expect("no code panics under this lock").push(relay);
    }

    /// Nobody will write to or read from this process again: what it still writes goes nowhere.
    pub(crate) fn abandon(&self) {
        self.stdin_stopped();
        // Each holds the entry that holds it, and would wait for a stream that nothing feeds any more.
        let relays = std::mem::take(&mut *self.relays.lock().expect("no code panics under this lock"));
        drop(relays);
        self.link.abandon_streams(self.streams.ids());
        if let Some(observation) = &self.observation {
            observation.abandon();
        }
    }

    pub(crate) fn stream_ids(&self) -> impl Iterator<Item = StreamId> {
        let events = self.observation.as_ref().map(|observation| observation.stream);
        self.streams.ids().chain(events)
    }

    pub(crate) fn started_info(&self) -> Option<ProcessStarted> {
        self.lock().started
    }

    pub(crate) fn failure(&self) -> Option<ClientError> {
        self.lock().failure.clone()
    }

    pub(crate) fn is_pinned(&self) -> bool {
        self.pin.lock().expect("no code panics under this lock").strong_count() > 0
    }

    // ---- the one way to change state ----

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no code panics under this lock")
    }

    fn update(&self, change: impl FnOnce(&mut State, &mut Effects) -> Option<Outcome>) {
        let mut effects = Effects::default();
        {
            let mut state = self.lock();
            let outcome = change(&mut state, &mut effects);
            effects.outcome = outcome.or_else(|| state.settle());
            if effects.outcome.is_some() {
                state.backstop = None;
                state.stdin.abandon(&mut effects.wakers);
                // Readers that end with the process's own output must look again.
                state.wake_outputs(&mut effects);
            }
            state.collect_consumed(&mut effects);
            effects.pressure = state.account(&self.retained);
        }
        if let Some(outcome) = effects.outcome {
            self.exit.publish(outcome);
            if self.streams.stdin.is_some() {
                self.link.abandon_streams(self.streams.stdin);
            }
        }
        if !effects.consumed.is_empty() {
            self.link.consumed(&effects.consumed);
        }
        effects.wakers.into_iter().for_each(Waker::wake);
        if let Some(pressure) = effects.pressure {
            self.link.relieve(self.vm, pressure);
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.lock().give_back(&self.retained);
    }
}
