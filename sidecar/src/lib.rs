//! The sidecar.

pub mod init;
pub mod isolation;
mod launch;
mod packet;
mod sys;
pub mod zygote;

pub use launch::run_zygote_if_requested;

#[cfg(test)]
before_main!();
#[cfg(test)]
mod vm_tests;
