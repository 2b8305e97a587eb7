//! What VMs this host can have, as this user, what can be observed of them, and what would have to change for more.
//!
//! Nothing is concluded from versions and settings: a VM of each level is built, and a program run in it. Its isolation
//! report is what a client would get; so is what was seen of the program.

mod probe;
mod text;

use agentvm_wire::observer::{ObserverCapabilities, TraceScope};
use agentvm_wire::vm::{Isolation, IsolationReport};
use rustix::process::geteuid;
use rustix::system::uname;
use serde::Serialize;

use crate::isolation::{Fault, Step};
use crate::observer::{capabilities, host};
use crate::server::run;
use crate::zygote::Zygote;
use probe::Failure;

pub(crate) use text::Text;

/// Every level, the strongest first.
const LEVELS: [Isolation; 3] = [Isolation::Sandbox, Isolation::Confined, Isolation::None];

/// What was found.
#[derive(Debug, Serialize)]
pub(crate) struct Diagnosis {
    version: &'static str,
    /// Release of the running kernel.
    kernel: String,
    arch: &'static str,
    /// Of this process.
    uid: u32,
    levels: Vec<Level>,
    /// What can be observed, of VMs and of the whole host.
    observer: Vec<ObserverCapabilities>,
}

/// One level of isolation.
#[derive(Debug, Serialize)]
struct Level {
    isolation: Isolation,
    /// What a VM gets, if there can be one.
    #[serde(skip_serializing_if = "Option::is_none")]
    report: Option<IsolationReport>,
    /// Why there can be none.
    #[serde(skip_serializing_if = "Option::is_none")]
    failure: Option<Failure>,
    /// What would have to change for what it lacks.
    remedies: Vec<&'static str>,
}

impl Diagnosis {
    /// Whether the default level can be had.
    pub(crate) fn has_sandboxes(&self) -> bool {
        self.levels.iter().any(|level| level.isolation == Isolation::Sandbox && level.report.is_some())
    }
}

/// Builds and ends VMs. Call it before any thread or runtime exists.
pub(crate) fn examine() -> anyhow::Result<Diagnosis> {
    crate::isolation::rlimits::adapt_sidecar();
    let zygote = Zygote::start();
    let levels = run(async {
        let mut levels = Vec::new();
        for isolation in LEVELS {
            levels.push(match probe::probe(&zygote, isolation).await {
                Ok(report) => {
                    let remedies = remedies(&report);
                    Level { isolation, report: Some(report), failure: None, remedies }
                }
                Err(failure) => {
                    let remedies = failure.remedy.into_iter().collect();
                    Level { isolation, report: None, failure: Some(failure), remedies }
                }
            });
        }
        capabilities::probe_all(&zygote).await;
        host::probe().await;
        Ok(levels)
    })?;
    Ok(Diagnosis {
        version: env!("CARGO_PKG_VERSION"),
        kernel: uname().release().to_string_lossy().into_owned(),
        arch: std::env::consts::ARCH,
        uid: geteuid().as_raw(),
        levels,
        observer: TraceScope::ALL.iter().map(|scope| capabilities::negotiate_for_scope(*scope)).collect(),
    })
}

/// For limits that nothing enforces. What else holds in part tells its own reason.
fn remedies(report: &IsolationReport) -> Vec<&'static str> {
    let missing = report.limits.iter().any(|limit| limit.missing.is_some());
    let fault = Fault::new(Step::Limits, rustix::io::Errno::OPNOTSUPP);
    missing.then(|| fault.hint()).flatten().into_iter().collect()
}
