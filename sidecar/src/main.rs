//! The sidecar as a program.
fn main() {}
