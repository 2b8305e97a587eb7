//! The client against a scripted peer: what it says, in which order, and what it makes of whatever a sidecar may say.
//!
//! Every test is a scene ([`scene`]): an `AgentOs` whose sidecar is a [`sidecar::Peer`] at the other end of a stream
//! in memory. The test plays both sides step by step. Nothing sleeps: each step waits for a named message, and a
//! scene that does not come to its end fails with the last of the dialogue. `D` numbers are the faults of
//! `design/process.md`.

#![expect(clippy::unwrap_used, reason = "every part of a scene is a test")]

mod exec;
mod exit;
mod guest;
mod loss;
mod plugin;
mod reading;
mod registry;
mod resource;
mod scene;
mod sidecar;
mod start;
mod stdin;
mod stdio;
mod table;
mod vm;

/// No arguments.
const NONE: [&str; 0] = [];
