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
    host,
    probe::{Found, probe},
    sighted,
};
use crate::{
    keeper::{self, Backend},
    zygote::Zygote,
};

/// Names the only means to be used.
const BACKEND_ENV: &str = "AGENTVM_OBSERVER_BACKEND";
/// Why a client of this sidecar sees nothing of the host.
const NOT_ALLOWED: &str =
    "this sidecar does not let its clients observe the host: see its option --allow-system-wide";
/// Why files and the network are seen in part.
const ATTEMPTS: &str = "calls are seen when they are tried, not what comes of them";
/// What notification misses, with records of forks and without.
const RECORDED: &str =
    "how a child ends that is killed before its first call may not be known, and stops are not seen";
const UNRECORDED: &str = "what is killed before its first call is not seen, for which perf_event_open(2) is needed (kernel.perf_event_paranoid at most 2, and a seccomp profile that has it), nor are stops";

static FOUND: OnceCell<Found> = OnceCell::const_new();

/// Tries what can be seen, unless that was done before or `request` does not depend on it.
pub(crate) async fn probe_for(request: &Request, zygote: &Zygote) {
    if reach(request) == TraceScope::SystemWide {
        return host::probe().await;
    }
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

/// How far a request would look.
pub(crate) fn reach(request: &Request) -> TraceScope {
    match request {
        Request::ObserverCapabilities(body) => body.scope,
        Request::Observe(body) => body.reach,
        _ => TraceScope::LaunchedProcessTree,
    }
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
    let cell = |category: &EventCategory| cell(scope, *category);
    ObserverCapabilities { scope, categories: EventCategory::ALL.iter().map(cell).collect() }
}

/// What a client may observe of the host that may not.
pub(crate) fn of_forbidden_host() -> ObserverCapabilities {
    let cell = |category: &EventCategory| CategoryCapability::unavailable(*category, NOT_ALLOWED);
    let scope = TraceScope::SystemWide;
    ObserverCapabilities { scope, categories: EventCategory::ALL.iter().map(cell).collect() }
}

/// What it is told.
pub(crate) fn forbidden_host() -> Rejection {
    let mut rejection = Rejection::invalid("reach", NOT_ALLOWED);
    rejection.code = Code::PERMISSION_DENIED;
    rejection
}

/// How well a category is seen within a scope.
fn cell(scope: TraceScope, category: EventCategory) -> CategoryCapability {
    match scope {
        TraceScope::LaunchedProcessTree => of_trees(category),
        _ => host::cell(category),
    }
}

fn of_trees(category: EventCategory) -> CategoryCapability {
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
    of_trees(EventCategory::Process).backend == Some(ObserverBackend::Ptrace)
}

/// Whether a category is seen of VMs and their processes at all.
pub(super) fn is_available(category: EventCategory) -> bool {
    is_available_within(TraceScope::LaunchedProcessTree, category)
}

/// Whether it is seen within a scope.
pub(super) fn is_available_within(scope: TraceScope, category: EventCategory) -> bool {
    cell(scope, category).support != CapabilitySupport::Unavailable
}

/// Refuses what would have gaps, where that was asked, and an observation of the host that sees nothing.
pub(crate) fn check(scope: TraceScope, observe: &Observe) -> Result<(), Rejection> {
    observe.validate()?;
    let mut cells = observe.categories.iter().map(|category| cell(scope, *category));
    let sees_nothing = |category: &EventCategory| !is_available_within(scope, *category);
    let refused = if observe.require_exact {
        cells.find(|cell| cell.support != CapabilitySupport::Supported)
    } else if scope == TraceScope::SystemWide && observe.categories.iter().all(sees_nothing) {
        cells.next()
    } else {
        None
    };
    let Some(CategoryCapability { category, support, reason, .. }) = refused else { return Ok(()) };
    let message = format!("{category} is not seen exactly: {support}, {reason}");
    let mut rejection = Rejection::new(Code::UNSUPPORTED, message);
    rejection.details.field = Some("observe.categories".to_owned());
    Err(rejection)
}
