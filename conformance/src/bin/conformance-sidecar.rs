//! `agentvm-sidecar`, built together with the runner so that it is never an older one, and ended with it.

use std::process::ExitCode;

use rustix::process::{Signal, set_parent_process_death_signal};

fn main() -> ExitCode {
    if let Err(error) = set_parent_process_death_signal(Some(Signal::TERM)) {
        eprintln!("this sidecar would outlive its runner: {error}");
        return ExitCode::FAILURE;
    }
    agentvm_sidecar::cli::run()
}
