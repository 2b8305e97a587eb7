//! See `sidecar/src/fuzz.rs`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| agentvm_sidecar::fuzz::run("packet", bytes));
