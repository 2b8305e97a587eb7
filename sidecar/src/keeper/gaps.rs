//! What each means misses though it works, by stable names.

use super::sighting::Backend;

/// Of processes.
pub fn of_processes(backend: Backend) -> &'static [&'static str] {
    match backend {
        // A program that traces others itself is refused that.
        Backend::Ptrace => &["debugger"],
        // Who is killed before a call that is asked about is not seen, nor are stops; a program that wants a listener of
        // its own is refused that.
        Backend::Notification => &["killed_early", "stops", "nested_listener"],
        // What is short is not seen, and codes only of what was.
        Backend::Polling => &["sampled"],
    }
}

/// Of files: how calls went; what is read, written and closed, and what was open from the beginning. Programs are told
/// that there is no `io_uring(7)`, nor a listener of their own.
pub fn of_files() -> &'static [&'static str] {
    &["attempts", "writes", "inherited", "io_uring", "nested_listener"]
}

/// Of the network: the same, of connections.
pub fn of_network() -> &'static [&'static str] {
    &["attempts", "inherited", "io_uring", "nested_listener"]
}
