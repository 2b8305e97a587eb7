//! Async client for sandboxed Linux VMs: create one, run commands in it, stream their output, see what runs.
//!
//! ```no_run
//! # async fn example() -> Result<(), agentvm_sdk::ClientError> {
//! use agentvm_sdk::{AgentOs, AgentOsConfig, ExecOptions, SpawnOptions};
//!
//! let vm = AgentOs::create(AgentOsConfig::new()).await?;
//! println!("{}", vm.exec("uname -sr", ExecOptions::new()).await?.stdout);
//! let process = vm.spawn("cat", [""; 0], SpawnOptions::new())?;
//! process.write_stdin("hello\n")?;
//! process.close_stdin();
//! assert!(process.wait().await?.success());
//! # Ok(()) }
//! ```
//!
//! [`AgentOs`] is a VM. [`AgentOs::exec`] runs a shell command to its end; [`AgentOs::spawn`] starts a program and
//! returns a [`Process`] to write to, read from, signal and await; [`AgentOs::all_processes`] and
//! [`AgentOs::process_tree`] show what really runs in there. The client spawns nothing itself: a *sidecar* does, which
//! the SDK launches and ends by itself ([`SidecarConfig`]).
//!
//! Whoever knows `vm.exec`, `vm.spawn`, `vm.onProcessStdout` in TypeScript knows this crate: names are the same in
//! snake case.

#![forbid(unsafe_code)]

mod agent_os;
mod callback;
mod config;
mod error;
mod link;
mod observer;
pub mod plugin;
mod process;
mod resource;
mod sidecar;
mod stdio;
mod transport;
mod vm;

pub use agentvm_wire as wire;
pub use agentvm_wire::resource::{Resource, ResourceUsage};
pub use agentvm_wire::vm::{Isolation, IsolationReport};

pub use agent_os::AgentOs;
pub use callback::Subscription;
pub use config::{AgentOsConfig, ProcessLimits};
pub use error::ClientError;
pub use observer::{
    AddressFamily, CapabilitySupport, CategoryCapability, EventCategory, NetworkAddress, ObserverBackend,
    ObserverCapabilities, ObserverConfig, ObserverEvent, ObserverEventKind, ObserverSubscriber, ProcessKey,
    TraceScope,
};
pub use process::{
    ExecBytes, ExecOptions, ExecResult, ExitCause, ExitStatus, FileAccess, FileHandle, FileKind, OutputLimit,
    Process, ProcessInfo, ProcessStatus, ProcessTreeNode, Signal, SignalTarget, SpawnOptions,
    SpawnedProcessInfo, Stdio, TimingMitigation, Truncated, UnknownSignal,
};
pub use resource::LimitWarning;
pub use sidecar::{Sidecar, SidecarConfig};
pub use stdio::{
    ByteStream, Output, OutputEvent, OutputEvents, OutputFrom, OutputGap, OutputPage, OutputState,
    OutputStream, Overflow, StdinInput, StreamLost,
};
pub use transport::{Duplex, Token, Transport};

/// The wall clock, epoch milliseconds; a clock before 1970 reads 0.
#[expect(clippy::disallowed_methods, reason = "it tells when, not how long")]
fn now_ms() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

/// The page for those who come from TypeScript: its example compiles.
#[cfg(doctest)]
#[doc = include_str!("../../docs/MIGRATING.md")]
struct Migrating;
