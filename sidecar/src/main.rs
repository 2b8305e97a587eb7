//! The sidecar as a program of its own: what a client launches.

use std::process::ExitCode;

fn main() -> ExitCode {
    agentvm_sidecar::run_if_requested();
    eprintln!(
        "agentvm-sidecar is launched by programs that use agentvm-sdk; there is nothing to run by hand yet"
    );
    ExitCode::from(2)
}
