//! The sidecar as a program of its own.

fn main() -> std::process::ExitCode {
    agentvm_sidecar::cli::run()
}
