//! `agentvm-sidecar`, ended with the runner.

use std::process::ExitCode;

use rustix::process::{Signal, set_parent_process_death_signal};

pub(crate) fn run() -> ExitCode {
    if let Err(error) = set_parent_process_death_signal(Some(Signal::TERM)) {
        eprintln!("this sidecar would outlive its runner: {error}");
        return ExitCode::FAILURE;
    }
    agentvm_sidecar::cli::run()
}
