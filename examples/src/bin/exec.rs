//! Runs its argument in a fresh VM.
fn main() {}
