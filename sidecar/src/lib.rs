//! The process that builds agentvm's VMs and runs what the client asks for.
//!
//! Programs do not call into it: a client launches it, as a binary of its own or as the program itself, whose `main`
//! then begins with [`run_if_requested`] (or which carries [`before_main!`]). See `ARCHITECTURE.md` for the parts.

#[cfg(feature = "cli")]
pub mod cli;
#[cfg(feature = "cli")]
mod doctor;
mod errno;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzz;
pub mod init;
pub mod isolation;
pub mod keeper;
mod launch;
mod link;
mod observer;
mod packet;
mod process;
pub mod server;
mod session;
mod state;
mod stdio;
mod supervisor;
mod sys;
mod vm;
mod word;
pub mod zygote;

pub use launch::run_if_requested;

/// The tour in the README compiles.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;

#[cfg(test)]
before_main!();
#[cfg(test)]
mod vm_tests;
