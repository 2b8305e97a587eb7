//! One VM in the sidecar: its init, its processes, and one task that follows both.
//!
//! ```text
//! ready ──► disposing ──► gone         dispose_vm: init is killed, perhaps after a grace; answered when the kernel says
//!   │                                  that all is gone
//!   └────────────────────► gone        init ended by itself: told as `vm_state failed`
//! ```

pub(crate) mod deadlines;
pub(crate) mod inspect;
mod observing;
mod reading;
mod table;
mod usage;
mod warnings;

use std::{
    collections::{BTreeMap, HashMap},
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard},
};

use agentvm_wire::{
    error::{Code, Rejection},
    id::{ProcessId, RequestId, VmId},
    message::{Event as WireEvent, Response},
    observer::TraceScope,
    process::{Execute, OutputDrained, ProcessSignaled, SignalProcess, SignalTarget},
    vm::{VmDisposed, VmState, VmStateChanged},
};
use futures_util::{StreamExt as _, stream::FuturesUnordered};
use rustix::process::Pid;
use tokio::{
    sync::Notify,
    time::{Instant, sleep_until},
};

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use self::table::fuzz_rows;

use self::deadlines::{Deadlines, Due, after};
use crate::{
    init::{Commands, Event, Events},
    link::Link,
    observer::{Observers, capabilities},
    process::{self, Action, Defaults, Process},
    zygote::Booted,
};

/// The limit on live processes, by its name.
const MAX_PROCESSES: &str = "max_processes";

/// A VM that is ready. See the module's diagram.
pub(crate) struct Vm {
    pub(crate) id: VmId,
    link: Arc<Link>,
    commands: Commands,
    environment: BTreeMap<String, String>,
    cwd: String,
    guest_ids: Option<(u32, u32)>,
    /// Its init, or the supervisor above that.
    pid: Pid,
    /// What may be used of what, by the names of the isolation report.
    limits: HashMap<String, u64>,
    state: Mutex<State>,
    /// A process has started, or has failed to; or a keeper has told something.
    settled: Notify,
    /// Work not yet taken over by the VM's task, and what wakes it for that.
    added: Mutex<Vec<Work>>,
    more: Notify,
}

#[derive(Default)]
struct State {
    processes: HashMap<ProcessId, Process>,
    /// Who is told what happens; nobody at first.
    observers: Option<Box<Observers>>,
    held_exits: HashMap<ProcessId, observing::HeldExit>,
    warnings: warnings::Warnings,
    /// Pumps of processes that init has not yet told of: a stream says nothing, not even its end, before the start.
    starting: HashMap<ProcessId, Vec<Work>>,
    exited: table::Exited,
    deadlines: Deadlines,
    /// Exits behind which descendants' output is awaited.
    draining: usize,
    /// When what is still there at the end of the VM's grace is killed; nothing is started any more.
    grace_ends: Option<Instant>,
    /// Requests that await the VM's end.
    disposals: Vec<RequestId>,
    /// Signals and readings on their way: what is still open when the VM ends is answered then.
    waiting: Vec<RequestId>,
    /// What is asked for from now on is refused.
    gone: bool,
}

/// Something that goes on beside the VM's events, polled by the VM's task.
pub(crate) type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

impl State {
    fn answered(&mut self, request: RequestId) {
        self.waiting.retain(|waiting| *waiting != request);
    }
}

impl Vm {
    /// Takes over a booted VM; `run` must be polled for it to live.
    pub(crate) fn new(
        id: VmId,
        link: Arc<Link>,
        booted: Booted,
    ) -> (Arc<Self>, impl Future<Output = ()> + use<>) {
        let vm = Arc::new(Self {
            id,
            link,
            commands: booted.commands,
            environment: booted.environment,
            cwd: booted.cwd,
            guest_ids: booted.guest_ids,
            pid: booted.pid,
            limits: booted
                .report
                .limits
                .into_iter()
                .filter_map(|limit| Some((limit.name, limit.effective?)))
                .collect(),
            state: Mutex::default(),
            settled: Notify::new(),
            added: Mutex::default(),
            more: Notify::new(),
        });
        (vm.clone(), vm.run(booted.events))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no code panics under this lock")
    }

    fn added(&self) -> MutexGuard<'_, Vec<Work>> {
        self.added.lock().expect("no code panics under this lock")
    }

    // ---- requests, in the order they came ----

    pub(crate) fn execute(self: &Arc<Self>, request: RequestId, execute: Execute) {
        if let Err(rejection) = self.try_execute(request, execute) {
            self.link.reject(request, rejection);
        }
    }

    fn try_execute(self: &Arc<Self>, request: RequestId, execute: Execute) -> Result<(), Rejection> {
        let (id, window, observe) = (execute.process, execute.window_bytes, execute.observe.clone());
        let check = |observe| capabilities::check(TraceScope::LaunchedProcessTree, observe);
        observe.as_ref().map_or(Ok(()), check)?;
        {
            let state = self.lock();
            if state.gone || state.grace_ends.is_some() {
                return Err(Rejection::vm_not_found());
            }
            let (live, limit) = (state.processes.len() as u64, self.link.limits().max_processes);
            if live >= limit {
                return Err(Rejection::limit(
                    Code::RESOURCE_EXHAUSTED,
                    MAX_PROCESSES,
                    "processes",
                    limit,
                    live,
                ));
            }
            if state.processes.contains_key(&id) || state.exited.contains(id) {
                return Err(Rejection::new(Code::ALREADY_EXISTS, format!("process {id} was started before")));
            }
        }
        let defaults = Defaults {
            environment: &self.environment,
            cwd: &self.cwd,
            owner: self.guest_ids,
            commands: &self.commands,
        };
        let mut started = process::start(&self.link, self.id, request, execute, &defaults)?;
        let mut state = self.lock();
        self.observe_start(&mut state, id, observe.map(|observe| (observe, window)), &mut started.spec);
        if let Some(deadline) = started.process.deadline
            && state.deadlines.add(deadline, Due::Process(id))
        {
            self.more.notify_one();
        }
        state.processes.insert(id, started.process);
        state.starting.insert(id, started.pumps);
        self.warn(&state);
        drop(state);
        self.commands.start(id, started.spec);
        self.watch();
        Ok(())
    }

    pub(crate) fn signal(&self, request: RequestId, body: &SignalProcess) {
        let mut state = self.lock();
        if state.gone {
            return self.link.reject(request, Rejection::vm_not_found());
        }
        let ended = match state.processes.get(&body.process) {
            Some(process) => process.has_ended(),
            None if state.exited.contains(body.process) => true,
            None => {
                let message = format!("Process not found: {}", body.process);
                return self.link.reject(request, Rejection::new(Code::NOT_FOUND, message));
            }
        };
        // Of a tree somebody may be left.
        if ended && body.target != SignalTarget::Tree {
            let nobody = ProcessSignaled { delivered: 0 };
            return self.link.respond(request, &Response::ProcessSignaled(nobody));
        }
        state.waiting.push(request);
        self.commands.signal(request.0, body.process, body.signal.number(), body.target);
    }

    /// Ends the VM, after a grace in which its processes may end by themselves; the answer follows when everything of it
    /// is gone.
    pub(crate) fn dispose(&self, request: RequestId, grace_ms: u64) {
        let mut state = self.lock();
        if state.gone {
            return self.link.respond(request, &Response::VmDisposed(VmDisposed {}));
        }
        state.disposals.push(request);
        let ends = after(grace_ms);
        if grace_ms == 0 {
            self.commands.end();
        } else if state.grace_ends.is_none() {
            self.commands.terminate();
        }
        if state.grace_ends.is_none_or(|earlier| ends < earlier) {
            state.grace_ends = Some(ends);
            state.deadlines.add(ends, Due::Grace);
            self.more.notify_one();
        }
    }

    /// The VM's task panicked: its client must not wait for ever. A bug, told as the VM's failure.
    pub(crate) fn panicked(self: &Arc<Self>) {
        tracing::error!(vm = %self.id, "a VM's task panicked");
        self.commands.end();
        self.ended();
    }

    /// Ends the VM because its session is over.
    pub(crate) fn end(&self) {
        self.commands.end();
    }

    fn add(&self, work: Work) {
        self.added().push(work);
        self.more.notify_one();
    }

    // ---- the VM's task ----

    /// Follows init and the work beside it until the VM is gone.
    async fn run(self: Arc<Self>, mut events: Events) {
        let mut work: FuturesUnordered<Work> = FuturesUnordered::new();
        loop {
            let next_deadline = self.lock().deadlines.next();
            tokio::select! {
                event = events.next() => match event {
                    Event::Ended => {
                        self.complete_observations();
                        self.flush(&mut work).await;
                        return self.ended();
                    }
                    event => self.follow(&event),
                },
                Some(()) = work.next() => {}
                () = async { sleep_until(next_deadline.expect("there is one")).await }, if next_deadline.is_some() => {
                    self.expire();
                }
                () = self.more.notified() => work.extend(std::mem::take(&mut *self.added())),
            }
        }
    }

    /// What processes wrote that ended in the VM's grace is still sent, for as long as that lasts.
    async fn flush(&self, work: &mut FuturesUnordered<Work>) {
        let Some(grace_ends) = self.lock().grace_ends else { return };
        work.extend(std::mem::take(&mut *self.added()));
        while !work.is_empty() && (self.lock().draining > 0 || self.link.has_sources(self.id)) {
            tokio::select! {
                Some(()) = work.next() => {}
                () = sleep_until(grace_ends) => return,
            }
        }
    }

    /// Acts on every deadline that has come.
    fn expire(self: &Arc<Self>) {
        loop {
            let due = self.lock().deadlines.take_due(Instant::now());
            match due {
                Some(Due::Process(process)) => self.step(process, process::Event::Expired),
                Some(Due::Exit(process)) => self.release_exit(&mut self.lock(), process),
                Some(Due::Grace) => self.commands.end(),
                None => return,
            }
        }
    }

    fn follow(self: &Arc<Self>, event: &Event) {
        match *event {
            Event::Started { process, pid, started_at_ms, start_ticks } => {
                self.step(process, process::Event::Started { pid, started_at_ms, start_ticks });
            }
            Event::StartFailed { process, step, errno } => {
                self.step(process, process::Event::StartFailed { step, errno });
            }
            Event::CpuLimit { process } => self.step(process, process::Event::CpuLimit),
            Event::Exited { process, exit } => self.step(process, process::Event::Exited(exit)),
            Event::Signaled { token, delivered } => {
                let request = RequestId(token);
                self.lock().answered(request);
                self.link.respond(request, &Response::ProcessSignaled(ProcessSignaled { delivered }));
            }
            _ => {}
        }
    }

    /// Moves a process on and tells the client what follows.
    fn step(self: &Arc<Self>, id: ProcessId, event: process::Event) {
        let mut guard = self.lock();
        let state = &mut *guard;
        let Some(process) = state.processes.get_mut(&id) else { return };
        let mut ended = None;
        for action in process.step(event) {
            match action {
                Action::AnswerStarted(request) => {
                    self.link.respond(request, &Response::ProcessStarted(process.started()));
                    state.starting.remove(&id).into_iter().flatten().for_each(|pump| self.add(pump));
                    if let Some(observers) = &mut state.observers {
                        observers.started(&self.link, process);
                    }
                }
                Action::AnswerFailed(request, failure) => {
                    if let Some(observers) = &mut state.observers {
                        observers.failed(id);
                    }
                    self.link.close_streams(process.streams());
                    self.link.reject(request, process.rejection(failure));
                }
                Action::TellExit(exit) => {
                    let exited = process.exited(&exit);
                    state.exited.keep(process, &exited);
                    ended = Some((exit, exited));
                    break;
                }
                Action::Expire => self.commands.expire(id),
            }
        }
        if process.has_ended() {
            if let Some(deadline) = process.deadline {
                state.deadlines.remove(deadline, Due::Process(id));
            }
            let process = state.processes.remove(&id);
            state.starting.remove(&id);
            if let Some((process, (exit, exited))) = process.zip(ended) {
                self.end_process(state, process, exit, exited);
            }
            self.warn(state);
        }
        self.settled.notify_waiters();
    }

    /// Awaits the tail of descendants' output behind an exit, where `execute` asked for it and there may be one.
    fn drain_if_asked(self: &Arc<Self>, process: &Process, output_open: bool) -> bool {
        let Some(drain) = process.drain().filter(|_| output_open) else { return false };
        let (vm, process, outputs) = (self.clone(), process.id, process.outputs().clone());
        self.add(Box::pin(async move {
            let end = outputs.drain(drain).await;
            vm.lock().draining -= 1;
            vm.link.event(vm.id, &WireEvent::OutputDrained(OutputDrained { process, end }));
        }));
        true
    }

    /// Init and everything in the VM is gone: the end is told, then every request still open is answered.
    fn ended(self: &Arc<Self>) {
        let (processes, waiting, disposals) = {
            let mut state = self.lock();
            state.gone = true;
            let processes: Vec<ProcessId> = state.processes.keys().copied().collect();
            (processes, std::mem::take(&mut state.waiting), std::mem::take(&mut state.disposals))
        };
        // The cause comes first: who waits for an answer learns it rather than "not found".
        if disposals.is_empty() {
            let reason = Some("init ended".to_owned());
            let change = VmStateChanged { state: VmState::Failed, reason };
            self.link.event(self.id, &WireEvent::VmState(change));
        }
        for process in processes {
            self.step(process, process::Event::Lost);
        }
        for request in waiting {
            self.link.reject(request, Rejection::vm_not_found());
        }
        self.link.close_vm(self.id);
        for request in disposals {
            self.link.respond(request, &Response::VmDisposed(VmDisposed {}));
        }
    }
}
