//! What changes in the life of an entry, and what a change entails.

use std::task::Waker;

use agentvm_wire::{
    id::StreamId,
    process::{ProcessStarted, Signal, SignalTarget, StdioStreams, StreamEnds},
};

use crate::{
    error::ClientError,
    link::Timer,
    process::{
        exit::Outcome,
        lifecycle::{Event, Lifecycle, Progress},
        retained::{Pressure, Retained},
    },
    stdio::{
        OutputStream,
        ring::{Arrival, Ring},
        stdin::StdinQueue,
    },
};

#[derive(Debug)]
pub(super) struct State {
    pub(super) lifecycle: Lifecycle,
    pub(super) started: Option<ProcessStarted>,
    pub(super) failure: Option<ClientError>,
    stdout: Option<Output>,
    stderr: Option<Output>,
    /// What the outputs hold, as last counted in the VM's sum.
    held: u64,
    /// The last that came in.
    arrived: Option<(OutputStream, Arrival)>,
    pub(super) stdin: StdinQueue,
    /// Signals sent and not yet answered: the same one again changes nothing.
    pub(super) signals: Vec<(Signal, SignalTarget)>,
    /// Gives it up should its timeout pass without a word.
    pub(super) backstop: Option<Timer>,
}

#[derive(Debug)]
pub(super) struct Output {
    stream: StreamId,
    pub(super) ring: Ring,
    /// Consumed offset last told to the connection.
    reported: u64,
}

/// What follows from a change of state, done once the lock is released.
#[derive(Default)]
pub(super) struct Effects {
    pub(super) wakers: Vec<Waker>,
    pub(super) consumed: Vec<(StreamId, u64)>,
    pub(super) outcome: Option<Outcome>,
    pub(super) pressure: Option<Pressure>,
}

impl State {
    pub(super) fn new(streams: StdioStreams, retained_bytes: u64, stdin_bytes: u64) -> Self {
        let output = |stream: Option<StreamId>| {
            stream.map(|stream| Output { stream, ring: Ring::new(retained_bytes), reported: 0 })
        };
        Self {
            lifecycle: Lifecycle::Starting,
            started: None,
            failure: None,
            stdout: output(streams.stdout),
            stderr: output(streams.stderr),
            held: 0,
            arrived: None,
            stdin: streams.stdin.map_or_else(StdinQueue::closed, |_| StdinQueue::new(stdin_bytes)),
            signals: Vec::new(),
            backstop: None,
        }
    }

    pub(super) fn output(&mut self, which: OutputStream) -> Option<&mut Output> {
        match which {
            OutputStream::Stdout => self.stdout.as_mut(),
            OutputStream::Stderr => self.stderr.as_mut(),
        }
    }

    /// Takes in what the process wrote, behind everything before it.
    pub(super) fn push(&mut self, which: OutputStream, bytes: &[u8], effects: &mut Effects) {
        let at_ms = crate::now_ms();
        let arrival = match self.arrived {
            // Bytes of one stream and one millisecond came in together.
            Some((stream, arrival)) if stream == which && arrival.at_ms == at_ms => arrival,
            Some((_, Arrival { order, .. })) => Arrival { order: order + 1, at_ms },
            None => Arrival { order: 0, at_ms },
        };
        self.arrived = Some((which, arrival));
        if let Some(output) = self.output(which) {
            output.ring.push(bytes, arrival, &mut effects.wakers);
        }
    }

    pub(super) fn outputs(&mut self) -> impl Iterator<Item = &mut Output> {
        self.stdout.iter_mut().chain(self.stderr.iter_mut())
    }

    pub(super) fn settle(&mut self) -> Option<Outcome> {
        if !matches!(self.lifecycle, Lifecycle::Delivering { .. }) {
            return None;
        }
        let progress = self.progress();
        self.lifecycle.step(Event::Progress(progress))
    }

    pub(super) fn progress(&self) -> Progress {
        let come = |offset: fn(&Ring) -> Option<u64>| {
            let of = |output: &Option<Output>| output.as_ref().and_then(|output| offset(&output.ring));
            StreamEnds { stdout: of(&self.stdout), stderr: of(&self.stderr) }
        };
        Progress { received: come(Ring::received), delivered: come(Ring::delivered) }
    }

    pub(super) fn end_streams(&mut self, effects: &mut Effects, end: fn(&mut Ring, &mut Vec<Waker>)) {
        for output in self.outputs() {
            end(&mut output.ring, &mut effects.wakers);
        }
    }

    /// From now on no subscriber holds the output or the exit up.
    pub(super) fn let_subscribers_go(&mut self, effects: &mut Effects) {
        for output in self.outputs() {
            output.ring.wait_for_nobody(&mut effects.wakers);
        }
    }

    pub(super) fn wake_outputs(&mut self, effects: &mut Effects) {
        for output in self.outputs() {
            output.ring.wake_all(&mut effects.wakers);
        }
    }

    pub(super) fn collect_consumed(&mut self, effects: &mut Effects) {
        for output in self.outputs() {
            let consumed = output.ring.consumed();
            if consumed > output.reported && output.ring.is_open() {
                output.reported = consumed;
                effects.consumed.push((output.stream, consumed));
            }
        }
    }

    /// Counts what the outputs hold now in the VM's sum.
    pub(super) fn account(&mut self, retained: &Retained) -> Option<Pressure> {
        let before = self.held;
        self.held = self.outputs().map(|output| output.ring.held_bytes()).sum();
        if self.held == before { None } else { retained.change(before, self.held) }
    }

    pub(super) fn give_back(&mut self, retained: &Retained) {
        retained.change(std::mem::take(&mut self.held), 0);
    }
}
