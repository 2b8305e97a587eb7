//! End to end: a program with the SDK, a real sidecar, real VMs. Run as root and as an ordinary user by the gate.

#![expect(clippy::unwrap_used, reason = "in a test a failure is a panic, and its place says enough")]

mod callers;
mod capture;
mod crowd;
mod doctor;
mod examples;
mod exec;
mod fixture;
mod inspect;
mod install;
mod isolation;
mod killed;
mod levels;
mod lifetime;
mod limits;
mod link;
mod many;
mod memory;
mod monitor;
mod monitor_flood;
mod monitor_restore;
mod monitor_stop;
mod monitor_wake;
mod observe;
mod observe_adopted;
mod observe_faults;
mod observe_fixtures;
mod observe_host;
mod observe_tree;
mod observed;
mod options;
mod output;
mod pipes;
mod serve;
mod signal;
mod soak;
mod spawn;
mod stdio;
mod support;
mod table;
mod timeout;
