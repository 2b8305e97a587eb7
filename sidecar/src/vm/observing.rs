//! Observations of a VM and of its processes.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use agentvm_wire::{
    error::{Code, Rejection},
    id::{ProcessId, RequestId},
    message::{Event as WireEvent, Response},
    observer::{Observe, ObserveVm, Observing, TraceScope},
    process::ProcessExited,
};

use super::{
    State, Vm,
    deadlines::{Due, after},
};
use crate::{
    init::{Exit, Reading, Row, StartSpec},
    keeper::{Running, Sightings},
    observer::{Expected, Feed, KeeperId, Observers, capabilities, host::HostEvents},
    process::Process,
};

/// How much of the process table is read at once.
const PAGE_BYTES: usize = 1 << 20;
/// How long an end that init tells waits for a keeper to tell of it, milliseconds.
const END_SEEN_LIMIT_MS: u64 = 1000;

/// The end of a process, waiting for its keeper.
#[derive(Debug)]
pub(super) struct HeldExit {
    process: Process,
    exit: Exit,
    exited: ProcessExited,
}

impl Vm {
    /// Observes the VM, or the host as long as the VM lives, from now on; what runs already is told first.
    pub(crate) fn observe(
        self: &Arc<Self>,
        request: RequestId,
        ObserveVm { observe, reach, window_bytes }: ObserveVm,
    ) -> Result<(), Rejection> {
        capabilities::check(reach, &observe)?;
        let of_host = reach == TraceScope::SystemWide;
        let host = of_host.then(HostEvents::observe).transpose();
        let host = host.map_err(|error| Rejection::new(Code::UNSUPPORTED, error.to_string()))?;
        let mut guard = self.lock();
        let state = &mut *guard;
        if state.gone || state.grace_ends.is_some() {
            return Err(Rejection::vm_not_found());
        }
        let observers = state.observers.get_or_insert_default();
        observers.admit(self.link.limits().max_observers)?;
        self.link.open_streams(vec![observe.stream], window_bytes)?;
        let adopts = !of_host && Observers::adopts(&observe);
        let feed = if of_host { observers.add_host(observe) } else { observers.add_whole(observe) };
        self.send(&feed, window_bytes, host);
        if adopts {
            drop(guard);
            self.answer_later(request, async move |vm: Arc<Self>| {
                vm.adopt().await;
                vm.begin(&mut vm.lock(), &feed);
                Ok(Response::Observing(Observing {}))
            });
        } else {
            if of_host {
                feed.tell_unavailable(&self.link, reach);
            } else {
                self.begin(state, &feed);
            }
            drop(guard);
            self.link.respond(request, &Response::Observing(Observing {}));
        }
        Ok(())
    }

    /// Begins to tell what happens.
    fn begin(&self, state: &mut State, feed: &Arc<Feed>) {
        let Some(observers) = &mut state.observers else { return };
        let mut running: Vec<_> =
            state.processes.values_mut().filter(|process| process.is_running()).collect();
        running.sort_unstable_by_key(|process| process.id);
        for process in &mut running {
            if let Some(key) = observers.key_of(process.id) {
                process.identify(key);
            }
        }
        let running: Vec<&Process> = running.into_iter().map(|process| &*process).collect();
        observers.begin(&self.link, feed, &running);
    }

    /// Has everything that runs already watched, as far as that can be; returns when it is.
    async fn adopt(self: &Arc<Self>) {
        for (process, running) in self.trees().await {
            let mut state = self.lock();
            let has_ended = state.processes.get(&process).is_none_or(Process::has_ended);
            let observers = state.observers.as_mut();
            let adopted = observers.and_then(|observers| observers.adopt(process, has_ended, running));
            if let Some((keeper, sightings)) = adopted {
                self.add(Box::pin(self.clone().follow_keeper(keeper, sightings)));
            }
        }
        loop {
            let told = self.settled.notified();
            if !self.lock().observers.as_ref().is_some_and(|observers| observers.is_adopting()) {
                return;
            }
            told.await;
        }
    }

    /// Every tree that runs, those that have outlived their roots, too.
    async fn trees(&self) -> BTreeMap<ProcessId, Running> {
        let mut rows: Vec<Row> = Vec::new();
        loop {
            let after = rows.last().map_or(0, |row| row.pid);
            // Who cannot be listed is not taken.
            let Ok(page) = self.read::<Row>(Reading::Table { after }, PAGE_BYTES).await else { break };
            rows.extend(page.rows);
            if !page.more {
                break;
            }
        }
        let roots: HashMap<u32, ProcessId> =
            rows.iter().filter_map(|row| Some((row.pid, row.root?))).collect();
        let mut trees: BTreeMap<ProcessId, Running> = BTreeMap::new();
        for (row, tree) in rows.iter().filter_map(|row| Some((row, row.root?))) {
            let running = trees.entry(tree).or_default();
            running.below = self.pid.as_raw_nonzero().get().unsigned_abs();
            if row.process == Some(tree) {
                running.root = Some(row.pid);
            }
            if roots.get(&row.ppid) != Some(&tree) {
                running.tops.push(row.pid);
            }
        }
        trees
    }

    /// Sees to it that those who observe are told of a process that is about to be started, whose streams are open.
    pub(super) fn observe_start(
        self: &Arc<Self>,
        state: &mut State,
        process: ProcessId,
        observe: Option<(Observe, Option<u64>)>,
        spec: &mut StartSpec,
    ) {
        if let Some((observe, window)) = observe {
            let feed = state.observers.get_or_insert_default().add_tree(process, observe);
            self.send(&feed, window, None);
            feed.tell_unavailable(&self.link, TraceScope::default());
        }
        let Some(observers) = &mut state.observers else { return };
        if !observers.observes(process) {
            return;
        }
        spec.observed = true;
        if let Some(Expected { keeper, watcher, sightings }) = observers.expect(&self.link, process) {
            spec.watcher = Some(watcher);
            if let Some(sightings) = sightings {
                self.add(Box::pin(self.clone().follow_keeper(keeper, sightings)));
            }
        }
    }

    /// Tells the end of a process, once its keeper has.
    pub(super) fn end_process(
        self: &Arc<Self>,
        state: &mut State,
        process: Process,
        exit: Exit,
        exited: ProcessExited,
    ) {
        let id = process.id;
        let held = HeldExit { process, exit, exited };
        if state.observers.as_ref().is_some_and(|observers| observers.awaits_end(id)) {
            state.held_exits.insert(id, held);
            if state.deadlines.add(after(END_SEEN_LIMIT_MS), Due::Exit(id)) {
                self.more.notify_one();
            }
        } else {
            self.tell_end(state, held);
        }
    }

    /// Tells the end of a process that has waited for its keeper.
    pub(super) fn release_exit(self: &Arc<Self>, state: &mut State, process: ProcessId) {
        if let Some(held) = state.held_exits.remove(&process) {
            self.tell_end(state, held);
        }
    }

    fn tell_end(self: &Arc<Self>, state: &mut State, HeldExit { process, exit, mut exited }: HeldExit) {
        if let Some(observers) = &mut state.observers {
            exited.told = observers.exited(&self.link, &process, &exit);
        }
        if self.drain_if_asked(&process, exited.output_open) {
            state.draining += 1;
        }
        self.link.event(self.id, &WireEvent::ProcessExited(exited));
    }

    /// The VM has ended: what waits is told, and nothing follows.
    pub(super) fn complete_observations(self: &Arc<Self>) {
        let mut guard = self.lock();
        let state = &mut *guard;
        for (_, held) in std::mem::take(&mut state.held_exits) {
            self.tell_end(state, held);
        }
        if let Some(mut observers) = state.observers.take() {
            observers.complete(&self.link);
        }
    }

    /// Takes what a keeper sees, until it is gone or nobody observes any more.
    async fn follow_keeper(self: Arc<Self>, keeper: KeeperId, mut sightings: Sightings) {
        loop {
            let sighted = sightings.next().await;
            let gone = sighted.is_none();
            let mut guard = self.lock();
            let state = &mut *guard;
            let Some(observers) = &mut state.observers else { return };
            let ended = match sighted {
                Some(sighted) => observers.sighted(&self.link, sighted),
                None => observers.keeper_gone(&self.link, keeper),
            };
            for process in ended {
                self.release_exit(state, process);
            }
            self.settled.notify_waiters();
            if gone {
                return;
            }
        }
    }

    /// Sends what a feed holds, and stops observing when nobody does any more. An observation of the host is fed here, too.
    fn send(self: &Arc<Self>, feed: &Arc<Feed>, window: Option<u64>, host: Option<HostEvents>) {
        self.link.add_source(feed.stream(), feed.clone(), self.id, window);
        let (vm, feed) = (self.clone(), feed.clone());
        self.add(Box::pin(async move {
            match host {
                Some(mut host) => tokio::select! {
                    () = feed.clone().sent() => {}
                    () = feed.take_all(&vm.link, &mut host) => feed.clone().sent().await,
                },
                None => feed.sent().await,
            }
            let mut guard = vm.lock();
            let state = &mut *guard;
            state.observers.take_if(|observers| observers.is_empty());
            let awaited =
                |process| state.observers.as_ref().is_some_and(|observers| observers.awaits_end(process));
            let due: Vec<_> = state.held_exits.keys().copied().filter(|process| !awaited(*process)).collect();
            for process in due {
                vm.release_exit(state, process);
            }
            vm.settled.notify_waiters();
        }));
    }
}
