//! What the tests of observing share: where it is done, by which means, and what was told.

use std::{collections::HashMap, fs};

use agentvm_sdk::{
    AgentOs, CapabilitySupport, CategoryCapability, EventCategory, ObserverBackend, ObserverConfig,
    ObserverEvent, ObserverEventKind as Kind, Process, ProcessKey, SpawnOptions, TraceScope,
};

use crate::fixture::{FIXTURE, let_in};
use crate::serve::Server;
use crate::support::{children, is_alive, within};

/// What sees every process that is not killed at once.
pub(crate) const EXACT: [ObserverBackend; 2] = [ObserverBackend::Ptrace, ObserverBackend::Notification];

/// A VM whose processes are seen by one means alone.
pub(crate) struct Observed {
    pub(crate) server: Server,
    pub(crate) vm: AgentOs,
}

impl Observed {
    pub(crate) async fn by(backend: ObserverBackend, test: &str) -> Self {
        let variable = ("AGENTVM_OBSERVER_BACKEND", backend.as_str());
        let server = Server::start_with(&format!("{test}-{backend}"), variable).await;
        let vm = server.vm().await;
        Self { server, vm }
    }

    /// What the matrix says of a category.
    pub(crate) async fn cell(&self, category: EventCategory) -> CategoryCapability {
        let tree = within(self.vm.observer_capabilities(TraceScope::LaunchedProcessTree)).await.unwrap();
        tree.category(category).unwrap().clone()
    }

    /// Whether the matrix names a gap.
    pub(crate) async fn has_gap(&self, category: EventCategory, gap: &str) -> bool {
        let cell = self.cell(category).await;
        assert_ne!(cell.support, CapabilitySupport::Unavailable, "{cell:?}");
        cell.gaps.iter().any(|named| named == gap)
    }

    /// Starts our own program, which must be in the VM.
    pub(crate) fn start(&self, what: &str, config: ObserverConfig) -> Process {
        self.vm.spawn(FIXTURE, [what], SpawnOptions::new().observe(config)).unwrap()
    }

    /// Runs our own program to its end: what was told of it.
    pub(crate) async fn fixture(&self, what: &str) -> Vec<ObserverEvent> {
        let_in(&self.vm).await;
        told(&self.start(what, config())).await
    }
}

/// Of processes.
pub(crate) fn config() -> ObserverConfig {
    ObserverConfig::with_categories([EventCategory::Lifecycle, EventCategory::Process])
}

pub(crate) fn shell(vm: &AgentOs, script: &str) -> Process {
    vm.spawn("sh", ["-c", script], SpawnOptions::new().observe(config())).unwrap()
}

/// Everything that is told of a process, to the end.
pub(crate) async fn told(process: &Process) -> Vec<ObserverEvent> {
    let found = all(process).await;
    assert_in_order(&found);
    assert_eq!(losses(&found), Vec::<&Kind>::new());
    found
}

/// The same, of which some may be missing.
pub(crate) async fn all(process: &Process) -> Vec<ObserverEvent> {
    let (events, mut found) = (process.observer().unwrap(), Vec::new());
    while let Some(event) = within(events.recv()).await {
        found.push(event);
    }
    within(process.wait()).await.unwrap();
    found
}

/// Runs a script to its end.
pub(crate) async fn run(vm: &AgentOs, script: &str) -> Vec<ObserverEvent> {
    told(&shell(vm, script)).await
}

/// Of each process the start comes first and the end last, a parent's start before its child's, and `complete` last.
pub(crate) fn assert_in_order(events: &[ObserverEvent]) {
    let mut stage: HashMap<ProcessKey, u8> = HashMap::new();
    for (index, event) in events.iter().enumerate() {
        assert_eq!(event.seq, index as u64 + 1);
        let Some(key) = event.key else { continue };
        let (least, now) = match event.kind {
            Kind::Started { .. } | Kind::DescendantStarted { .. } => (0, 1),
            Kind::Exited { .. } | Kind::DescendantExited { .. } => (1, 2),
            _ => (1, 1),
        };
        assert_eq!(stage.insert(key, now).unwrap_or(0), least, "{event:?}");
        if let (Kind::DescendantStarted { .. }, Some(parent)) = (&event.kind, event.parent_key) {
            assert!(stage.contains_key(&parent), "{event:?}");
        }
    }
    assert_eq!(events.last().map(|event| event.kind.as_str()), Some("complete"));
}

pub(crate) fn losses(events: &[ObserverEvent]) -> Vec<&Kind> {
    events.iter().map(|event| &event.kind).filter(|kind| kind.as_str() == "loss").collect()
}

pub(crate) fn count(events: &[ObserverEvent], kind: &str, root: &Process) -> usize {
    events.iter().filter(|event| event.kind.as_str() == kind && event.pid != Some(root.pid())).count()
}

/// How descendants ended.
pub(crate) fn codes(events: &[ObserverEvent]) -> Vec<i32> {
    codes_of(events, "descendant-exited")
}

/// How the started process ended, each time that is told.
pub(crate) fn ends(events: &[ObserverEvent]) -> Vec<i32> {
    codes_of(events, "exited")
}

fn codes_of(events: &[ObserverEvent], kind: &str) -> Vec<i32> {
    let ends = events.iter().filter(|event| event.kind.as_str() == kind);
    ends.filter_map(|event| event.kind.folded_code()).collect()
}

/// The keepers of a sidecar.
pub(crate) fn keepers(sidecar: u32) -> Vec<u32> {
    let is_keeper = |pid: &u32| {
        fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm == "agentvm-keeper\n")
    };
    children(sidecar).into_iter().filter(|pid| is_keeper(pid) && is_alive(*pid)).collect()
}
