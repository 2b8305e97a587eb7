//! What each means misses though it works, or takes from those that are watched, by stable names.

use super::sighting::Backend;

/// Of processes; `records`: forks are recorded beside notification.
pub fn of_processes(backend: Backend, records: bool) -> &'static [&'static str] {
    match backend {
        // Everything is seen; a program that traces others itself is refused that.
        Backend::Ptrace => &["debugger"],
        // Who is killed before a call that is asked about is not seen, or its end is not known, nor are stops, nor what ran
        // before; a program that wants a listener of its own is refused that.
        Backend::Notification if records => {
            &["killed_early_codes", "unreadable_programs", "stops", "adopted", "nested_listener"]
        }
        Backend::Notification => &["killed_early", "stops", "adopted", "nested_listener"],
        // What is short is not seen, and codes only of what was; nor are stops, nor what ran before.
        Backend::Polling => &["sampled", "stops", "adopted"],
    }
}

/// Of files: how calls went; what is read, written and closed, what was open from the beginning, and what ran before.
/// Programs are told that there is no `io_uring(7)`, nor a listener of their own.
pub fn of_files() -> &'static [&'static str] {
    &["result", "writes", "inherited", "adopted", "io_uring", "nested_listener"]
}

/// Of the network: the same, of connections.
pub fn of_network() -> &'static [&'static str] {
    &["result", "inherited", "adopted", "io_uring", "nested_listener"]
}
