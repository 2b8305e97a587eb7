//! Processes: starting them, following them, and the two views of what runs — the registry of what this handle
//! spawned, and the VM's own process table.

pub(crate) mod entry;
mod exec;
mod exit;
mod inspect;
mod lifecycle;
mod options;
mod output;
mod registry;
pub(crate) mod retained;
mod spawn;
mod stdin;
mod table;
#[cfg(test)]
mod tests;
mod tree;

use agentvm_wire::error::Rejection;

pub use agentvm_wire::process::{ExitCause, FileAccess, FileKind, ProcessStatus, SignalTarget};
pub use exec::{ExecBytes, ExecResult};
pub use exit::ExitStatus;
pub use inspect::FileHandle;
pub use options::{ExecOptions, SpawnOptions};
pub use registry::SpawnedProcessInfo;
pub use spawn::Process;
pub use table::ProcessInfo;
pub use tree::ProcessTreeNode;

use crate::error::ClientError;

/// What a rejected `execute` means to the caller: a failed start names its step, anything else is passed on.
pub(crate) fn start_failure(command: &str, rejection: Rejection) -> ClientError {
    match rejection.details.step.clone() {
        Some(step) => ClientError::SpawnFailed {
            message: format!("{command}: {}", rejection.message),
            code: rejection.code,
            step,
        },
        None => ClientError::Rejected(rejection),
    }
}
