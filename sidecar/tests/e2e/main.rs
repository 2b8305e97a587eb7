//! End to end: a program with the SDK, a real sidecar, real VMs. Run as root and as an ordinary user by the gate.

mod exec;
mod isolation;
mod lifetime;
mod spawn;
mod stdio;
mod support;
mod table;
