//! What can be observed on this host, and how exactly.
//!
//! Nothing is concluded from versions and settings: each means is tried on a process in a VM, once, when somebody first
//! asks for more than the sidecar sees by itself.

use agentvm_wire::{
    error::{Code, Rejection},
    message::Request,
    observer::{
        CapabilitySupport, CategoryCapability, EventCategory, Observe, ObserverBackend, ObserverCapabilities,
        TraceScope,
    },
};
use tokio::sync::OnceCell;

use super::{
    probe::{Found, probe},
    sighted,
};
use crate::{
    keeper::{self, Backend},
    zygote::Zygote,
};

/// Names the only means to be used.
const BACKEND_ENV: &str = "AGENTVM_OBSERVER_BACKEND";
/// What it would take to see a whole host.
const NOT_SYSTEM_WIDE: &str = "this sidecar looks at nothing but its own VMs; the kernel's process connector would take root of the host";
/// Why files and the network are seen in part.
const ATTEMPTS: &str = "calls are seen when they are tried, not what comes of them";
/// What notification misses, with records of forks and without.
const RECORDED: &str =
    "how a child ends that is killed before its first call may not be known, and stops are not seen";
const UNRECORDED: &str = "what is killed before its first call is not seen, for which perf_event_open(2) is needed (kernel.perf_event_paranoid at most 2, and a seccomp profile that has it), nor are stops";

static FOUND: OnceCell<Found> = OnceCell::const_new();

/// Tries what can be seen, unless that was done before or `request` does not depend on it.
pub(crate) async fn probe_for(request: &Request, zygote: &Zygote) {
    let observe = match request {
        Request::ObserverCapabilities(_) => return probe_all(zygote).await,
        Request::Observe(body) => Some(&body.observe),
        Request::Execute(execute) => execute.observe.as_ref(),
        _ => None,
    };
    if observe.is_some_and(|observe| observe.categories.iter().any(|category| takes_keeper(*category))) {
        probe_all(zygote).await;
    }
}

/// Tries what can be seen, unless that was done before.
pub(crate) async fn probe_all(zygote: &Zygote) {
    FOUND.get_or_init(|| async { probe(zygote, &ladder()).await }).await;
}

/// The means that are tried, from the best on; `AGENTVM_OBSERVER_BACKEND` names the only one.
pub(super) fn ladder() -> Vec<Backend> {
    let forced = std::env::var(BACKEND_ENV).ok().and_then(|name| Backend::from_name(&name));
    forced.map_or_else(|| Backend::ALL.to_vec(), |backend| vec![backend])
}

/// Whether the sidecar sees it only through a keeper.
pub(super) fn takes_keeper(category: EventCategory) -> bool {
    category != EventCategory::Lifecycle
}

/// What can be observed within a scope, as far as it was tried.
pub(crate) fn negotiate_for_scope(scope: TraceScope) -> ObserverCapabilities {
    let cell = |category: &EventCategory| match scope {
        TraceScope::LaunchedProcessTree => cell(*category),
        _ => CategoryCapability::unavailable(*category, NOT_SYSTEM_WIDE),
    };
    ObserverCapabilities { scope, categories: EventCategory::ALL.iter().map(cell).collect() }
}

/// How well a category is seen of VMs and their processes.
pub(super) fn cell(category: EventCategory) -> CategoryCapability {
    match (category, FOUND.get()) {
        (EventCategory::Lifecycle, _) => CategoryCapability::supported(category, ObserverBackend::Spawn),
        (EventCategory::Process, Some(found)) => of_processes(found),
        (EventCategory::File, Some(found)) => of_calls(category, found, keeper::of_files()),
        (EventCategory::Network, Some(found)) => of_calls(category, found, keeper::of_network()),
        _ => CategoryCapability::unavailable(category, "it was not tried"),
    }
}

fn of_calls(category: EventCategory, found: &Found, gaps: &[&str]) -> CategoryCapability {
    match &found.calls {
        Ok(()) => CategoryCapability::partial(category, ObserverBackend::Notification, ATTEMPTS, names(gaps)),
        Err(why) => CategoryCapability::unavailable(category, format!("seccomp_unotify(2): {why}")),
    }
}

fn of_processes(found: &Found) -> CategoryCapability {
    let category = EventCategory::Process;
    let failed = |(backend, tried): &(Backend, Result<(), String>)| {
        tried.as_ref().err().map(|why| format!("{}: {why}", backend.name()))
    };
    let best = found.process.iter().find(|(_, tried)| tried.is_ok());
    let failures: Vec<_> =
        found.process.iter().take_while(|(_, tried)| tried.is_err()).filter_map(failed).collect();
    match best {
        Some((backend @ Backend::Ptrace, _)) => CategoryCapability {
            gaps: names(keeper::of_processes(*backend, found.records)),
            ..CategoryCapability::supported(category, ObserverBackend::Ptrace)
        },
        Some((backend, _)) => {
            let misses = misses(*backend, found.records).to_owned();
            let reason = failures.into_iter().chain([misses]).collect::<Vec<_>>().join("; ");
            let gaps = names(keeper::of_processes(*backend, found.records));
            CategoryCapability::partial(category, sighted::backend(*backend), reason, gaps)
        }
        None => CategoryCapability::unavailable(category, failures.join("; ")),
    }
}

/// What a second best means does not see.
fn misses(backend: Backend, records: bool) -> &'static str {
    match backend {
        Backend::Polling => "what is over between two looks is not seen",
        _ if records => RECORDED,
        _ => UNRECORDED,
    }
}

fn names(gaps: &[&str]) -> Vec<String> {
    gaps.iter().map(|gap| (*gap).to_owned()).collect()
}

/// Whether forks are recorded beside notification.
pub(super) fn has_records() -> bool {
    FOUND.get().is_some_and(|found| found.records)
}

/// Whether processes are seen by a means that also takes those that run already.
pub(super) fn can_adopt() -> bool {
    cell(EventCategory::Process).backend == Some(ObserverBackend::Ptrace)
}

/// Whether a category is seen at all.
pub(super) fn is_available(category: EventCategory) -> bool {
    cell(category).support != CapabilitySupport::Unavailable
}

/// Refuses what would have gaps, where that was asked.
pub(crate) fn check(observe: &Observe) -> Result<(), Rejection> {
    observe.validate()?;
    if !observe.require_exact {
        return Ok(());
    }
    let cells = observe.categories.iter().map(|category| cell(*category));
    let Some(cell) = cells.into_iter().find(|cell| cell.support != CapabilitySupport::Supported) else {
        return Ok(());
    };
    let CategoryCapability { category, support, reason, .. } = cell;
    let message = format!("{category} is not seen exactly: {support}, {reason}");
    let mut rejection = Rejection::new(Code::UNSUPPORTED, message);
    rejection.details.field = Some("observe.categories".to_owned());
    Err(rejection)
}
