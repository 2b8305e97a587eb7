//! The monitors of a session and what follows from what is asked and from what happens. No I/O, no clock: whoever calls
//! tells the time, and carries out what [`Session::next`] says.

mod kept;

use std::collections::BTreeMap;

use self::kept::Kept;
use super::{
    lifecycle::{End, Step},
    limits::MonitorLimits,
    lines::Line,
    record::{Monitor, Origin},
    spec::{MonitorArm, MonitorSpec, visible_id},
    status::{MonitorEvent, MonitorSnapshot, MonitorState, MonitorStatus, MonitorStream, MonitorUpdateBatch},
};
use crate::plugin::error::PluginError;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Session {
    limits: MonitorLimits,
    revision: u64,
    kept: Kept,
    /// Up to where events were returned.
    returned: u64,
    stage: Stage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Stage {
    #[default]
    Begins,
    Ready,
    Ends,
}

impl Session {
    pub(super) fn new(limits: MonitorLimits) -> Self {
        Self { limits, ..Self::default() }
    }

    pub(super) fn revision(&self) -> u64 {
        self.revision
    }

    // ---- asked ----

    /// Makes monitors known, all or none. Those of `session_start` start, or will when the session begins.
    pub(super) fn register(
        &mut self,
        specs: Vec<(Option<String>, MonitorSpec)>,
        now_ms: u64,
    ) -> Result<(), PluginError> {
        let mut named = BTreeMap::new();
        for (owner, mut spec) in specs {
            spec.validate()?;
            spec.id = visible_id(owner.as_deref(), &spec)?;
            named.insert(spec.id.clone(), spec);
        }
        let new = named.keys().filter(|id| !self.kept.monitors.contains_key(*id)).count();
        self.check_room(new)?;
        for (id, spec) in named {
            let monitor = self.kept.monitors.entry(id.clone()).or_insert_with(|| Monitor::new(spec.clone()));
            monitor.respecify(spec);
            let first = !std::mem::replace(&mut monitor.registered, true);
            let starts = first
                && monitor.spec.arm_on == MonitorArm::SessionStart
                && monitor.life.state != MonitorState::Stopped;
            monitor.life.armed |= starts;
            if starts && self.stage == Stage::Ready {
                self.begin(&id, now_ms);
            }
        }
        self.revision += 1;
        Ok(())
    }

    /// Starts a monitor, known by its visible id or new. One that runs is left alone, unless its spec is another.
    pub(super) fn start(&mut self, mut spec: MonitorSpec, now_ms: u64) -> Result<String, PluginError> {
        if self.stage == Stage::Ends {
            return Err(PluginError::ShutDown);
        }
        spec.validate()?;
        let id = spec.id.clone();
        if let Some(monitor) = self.kept.monitors.get_mut(&id) {
            monitor.respecify(spec);
            monitor.start(now_ms);
        } else {
            spec.id = visible_id(None, &spec)?;
            self.check_room(1)?;
            self.kept.monitors.insert(id.clone(), Monitor::new(spec));
            self.begin(&id, now_ms);
        }
        self.revision += 1;
        Ok(id)
    }

    pub(super) fn stop(&mut self, id: &str) -> Result<(), PluginError> {
        self.monitor_mut(id)?.life.stop();
        self.revision += 1;
        Ok(())
    }

    /// Forgets a monitor of which nothing runs. True if it is gone.
    pub(super) fn forget(&mut self, id: &str) -> bool {
        let goes = self.kept.monitors.get(id).is_none_or(|monitor| monitor.life.is_resting());
        if goes && self.kept.monitors.remove(id).is_some() {
            self.revision += 1;
        }
        goes
    }

    pub(super) fn status(&self, id: &str) -> Result<MonitorStatus, PluginError> {
        self.monitor(id).map(Monitor::status)
    }

    /// It runs, or waits for its restart.
    pub(super) fn is_active(&self, id: &str) -> bool {
        self.monitor(id).is_ok_and(|monitor| !monitor.life.is_resting())
    }

    pub(super) fn snapshot(&self) -> MonitorSnapshot {
        MonitorSnapshot {
            revision: self.revision,
            active_count: self.active_count(),
            monitors: self.kept.monitors.values().map(Monitor::status).collect(),
        }
    }

    /// Deletes what was taken and returns the rest: it counts as taken with the next call that does not say otherwise.
    pub(super) fn take_updates(&mut self, after_sequence: Option<u64>) -> MonitorUpdateBatch {
        let taken = after_sequence.unwrap_or(self.returned).max(self.kept.taken);
        let mut changed = taken > self.kept.taken;
        self.kept.taken = taken;
        let (mut events, mut wakes, mut dropped) = (Vec::new(), Vec::new(), BTreeMap::new());
        for (id, monitor) in &mut self.kept.monitors {
            monitor.events.take(taken);
            if monitor.events.dropped() > 0 {
                dropped.insert(id.clone(), monitor.events.dropped());
            }
            events.extend(monitor.events.untaken(taken));
            monitor.events.returned();
            wakes.extend(monitor.wake.text(id));
            changed |= monitor.wake.returned();
        }
        events.sort_by_key(|event| event.sequence);
        self.returned = self.kept.sequence;
        self.revision += u64::from(changed);
        MonitorUpdateBatch {
            revision: self.revision,
            active_count: self.active_count(),
            events,
            dropped,
            wakes,
        }
    }

    /// What is kept of a monitor's events from there on, taken or not.
    pub(super) fn logs(&self, id: &str, from: u64, max: usize) -> Result<Vec<MonitorEvent>, PluginError> {
        Ok(self.monitor(id)?.events.kept_from(from).take(max).cloned().collect())
    }

    /// Wakes up to there were read; without a number: what was returned last.
    pub(super) fn ack(&mut self, acks: &[(String, Option<u64>)]) -> Result<(), PluginError> {
        for (id, _) in acks {
            self.monitor(id)?;
        }
        for (id, through) in acks {
            let wake = &mut self.monitor_mut(id)?.wake;
            wake.ack(through.unwrap_or(wake.returned_through()));
        }
        self.revision += 1;
        Ok(())
    }

    // ---- carried out ----

    /// The session begins: what is armed starts.
    pub(super) fn ready(&mut self, now_ms: u64) {
        self.stage = Stage::Ready;
        self.kept.closed = false;
        for id in self.ids(|monitor| monitor.life.armed) {
            self.begin(&id, now_ms);
        }
        self.revision += 1;
    }

    /// The session ends: so does what runs, and nothing starts any more.
    pub(super) fn leave(&mut self) {
        self.stage = Stage::Ends;
        self.kept.monitors.values_mut().for_each(|monitor| monitor.life.leave());
    }

    /// Nothing runs any more in a session that ends.
    pub(super) fn close(&mut self) -> bool {
        let closes = self.stage == Stage::Ends && self.active_count() == 0;
        if closes && !std::mem::replace(&mut self.kept.closed, true) {
            self.revision += 1;
        }
        closes
    }

    /// Those that have something to do and nobody who does it; from now on somebody does.
    pub(super) fn take_unowned(&mut self) -> Vec<String> {
        let ids = self.ids(|monitor| !monitor.owned && self.step(monitor) != Step::Rest);
        for id in &ids {
            self.kept.monitors.get_mut(id).expect("just found").owned = true;
        }
        ids
    }

    /// What a monitor's owner has to do; with [`Step::Rest`] it owns it no longer.
    pub(super) fn next(&mut self, id: &str) -> Step {
        let step = self.monitor(id).map_or(Step::Rest, |monitor| self.step(monitor));
        if let Ok(monitor) = self.monitor_mut(id) {
            monitor.owned = step != Step::Rest;
        }
        step
    }

    /// What waits for its restart when the session ends waits for the next one.
    fn step(&self, monitor: &Monitor) -> Step {
        match monitor.life.next(&monitor.spec) {
            Step::BackOff(_) if self.stage == Stage::Ends => Step::Rest,
            step => step,
        }
    }

    /// What a run is to carry out.
    pub(super) fn spec(&self, id: &str) -> Option<MonitorSpec> {
        self.monitor(id).ok().map(|monitor| monitor.spec.clone())
    }

    /// The command of a run was given to the VM.
    pub(super) fn spawned(&mut self, id: &str, run_id: u64, pid: u32) {
        if let Some(monitor) = self.of_run(id, run_id) {
            monitor.pid = Some(pid);
            self.revision += 1;
        }
    }

    pub(super) fn is_stopping(&self, id: &str, run_id: u64) -> bool {
        let monitor = self.kept.monitors.get(id).filter(|monitor| monitor.life.run_id == run_id);
        monitor.is_none_or(|monitor| monitor.life.is_stopping())
    }

    pub(super) fn lines(
        &mut self,
        id: &str,
        run_id: u64,
        stream: MonitorStream,
        lines: impl IntoIterator<Item = Line>,
        now_ms: u64,
    ) {
        let (limits, taken, mut sequence) = (self.limits, self.kept.taken, self.kept.sequence);
        let Some(monitor) = self.of_run(id, run_id) else { return };
        for line in lines {
            sequence += 1;
            monitor.line(stream, line, Origin { sequence, taken, now_ms, limits: &limits });
        }
        self.kept.sequence = sequence;
        self.revision += 1;
    }

    pub(super) fn ended(&mut self, id: &str, run_id: u64, end: &End, now_ms: u64) {
        let Some(monitor) = self.of_run(id, run_id) else { return };
        let ended = monitor.life.ended(end, &monitor.spec);
        let told = ended.map(|ended| (ended.stopped, monitor.ended(end, &ended)));
        self.revision += 1;
        let Some((stopped, messages)) = told else { return };
        for message in messages {
            self.happened(id, run_id, message, !stopped, now_ms);
        }
        if let Some(monitor) = self.of_run(id, run_id + 1) {
            monitor.began(now_ms);
        }
    }

    /// The wait before a restart is over.
    pub(super) fn backed_off(&mut self, id: &str, now_ms: u64) {
        if self.stage != Stage::Ends
            && let Some(monitor) = self.kept.monitors.get_mut(id)
            && monitor.life.backed_off()
        {
            monitor.began(now_ms);
            self.revision += 1;
        }
    }

    /// A monitor's owner has ended before its time.
    pub(super) fn abandoned(&mut self, id: &str, now_ms: u64) {
        let Some(monitor) = self.kept.monitors.get_mut(id).filter(|monitor| monitor.owned) else { return };
        monitor.owned = false;
        if monitor.life.is_running() {
            let run_id = monitor.life.run_id;
            self.ended(id, run_id, &End::Abandoned, now_ms);
        }
        // Nobody waits for its restart any more.
        if let Ok(monitor) = self.monitor_mut(id) {
            monitor.life.stop();
            self.revision += 1;
        }
    }

    // ---- inside ----

    fn begin(&mut self, id: &str, now_ms: u64) {
        if self.stage != Stage::Ends
            && let Some(monitor) = self.kept.monitors.get_mut(id)
        {
            monitor.start(now_ms);
        }
    }

    fn happened(&mut self, id: &str, run_id: u64, message: String, wakes: bool, now_ms: u64) {
        let Kept { monitors, sequence, taken, .. } = &mut self.kept;
        if let Some(monitor) = monitors.get_mut(id) {
            *sequence += 1;
            let origin = Origin { sequence: *sequence, taken: *taken, now_ms, limits: &self.limits };
            monitor.happened(run_id, message, wakes, origin);
        }
    }

    fn check_room(&self, new: usize) -> Result<(), PluginError> {
        let (limit, observed) = (self.limits.monitors as u64, self.kept.monitors.len() as u64);
        if observed + new as u64 <= limit {
            return Ok(());
        }
        Err(PluginError::ResourceLimit { name: "monitors", limit, observed })
    }

    fn active_count(&self) -> usize {
        self.kept.monitors.values().filter(|monitor| monitor.life.is_running()).count()
    }

    fn ids(&self, which: impl Fn(&Monitor) -> bool) -> Vec<String> {
        let found = self.kept.monitors.iter().filter(|(_, monitor)| which(monitor));
        found.map(|(id, _)| id.clone()).collect()
    }

    fn monitor(&self, id: &str) -> Result<&Monitor, PluginError> {
        self.kept.monitors.get(id).ok_or_else(|| not_found(id))
    }

    fn monitor_mut(&mut self, id: &str) -> Result<&mut Monitor, PluginError> {
        self.kept.monitors.get_mut(id).ok_or_else(|| not_found(id))
    }

    /// A monitor whose newest run is this one, and goes on.
    fn of_run(&mut self, id: &str, run_id: u64) -> Option<&mut Monitor> {
        let monitor = self.kept.monitors.get_mut(id)?;
        (monitor.life.run_id == run_id && monitor.life.is_running()).then_some(monitor)
    }
}

fn not_found(id: &str) -> PluginError {
    PluginError::NotFound { kind: "monitor", id: id.to_owned() }
}
