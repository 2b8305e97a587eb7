//! Processes: starting them, following them, and the two views of what runs — the registry of what this handle
//! spawned, and the VM's own process table.

mod command;
pub(crate) mod entry;
mod exec;
mod exit;
mod inspect;
mod lifecycle;
mod options;
mod output;
mod registry;
mod relay;
pub(crate) mod retained;
mod signal;
mod spawn;
mod stdin;
mod table;
#[cfg(test)]
mod tests;
mod tree;

use agentvm_wire::error::{Code, Rejection};

pub use agentvm_wire::process::{
    ExitCause, FileAccess, FileKind, ProcessStatus, Signal, SignalTarget, UnknownSignal,
};
pub use exec::{ExecBytes, ExecResult, OutputLimit, Truncated};
pub use exit::ExitStatus;
pub use inspect::FileHandle;
pub(crate) use options::millis;
pub use options::{ExecOptions, SpawnOptions, Stdio, TimingMitigation};
pub use registry::SpawnedProcessInfo;
pub use spawn::Process;
pub use table::ProcessInfo;
pub use tree::ProcessTreeNode;

use crate::error::ClientError;

/// What a rejected `execute` means to the caller: a failed start names its step, anything else is passed on.
pub(crate) fn start_failure(command: &str, rejection: Rejection) -> ClientError {
    match rejection.details.step.clone() {
        Some(_) if rejection.code == Code::DEADLINE_EXCEEDED => {
            ClientError::StartTimedOut { command: command.to_owned() }
        }
        Some(step) => ClientError::SpawnFailed {
            message: format!("{command}: {}", rejection.message),
            code: rejection.code,
            step,
        },
        None => ClientError::Rejected(rejection),
    }
}
