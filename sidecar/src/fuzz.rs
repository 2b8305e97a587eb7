//! What the fuzzers call, coverage-guided (`fuzz/`) or by the gate's own small one (`tests.rs`): whatever comes from a
//! guest, or from an init that a guest has taken over, is taken or refused. Nothing panics, and what is taken is sound.

#[cfg(test)]
mod tests;

use crate::{init, vm};

/// A target: its name, which is also that of its folder of seeds, and what is done with the bytes.
pub type Target = (&'static str, fn(&[u8]));

/// All targets.
pub const TARGETS: [Target; 6] = [
    ("packet", init::fuzz::packet),
    ("rows", vm::fuzz_rows),
    ("stat", init::fuzz::stat),
    ("text", init::fuzz::text),
    ("script", init::fuzz::script),
    ("exit", init::fuzz::exit),
];

/// Runs one target.
///
/// # Panics
/// There is none of that name, or it found something.
pub fn run(name: &str, bytes: &[u8]) {
    let (_, target) = TARGETS.iter().find(|(known, _)| *known == name).expect("there is such a target");
    target(bytes);
}
