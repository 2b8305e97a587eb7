//! The core as a deterministic pair: a client and a sidecar end joined by two queues that only move when a test says
//! so. No sockets, no time: whatever order two real ends could meet in is written down step by step.

mod bad_input;
mod credit;
mod fairness;
mod pair;
mod properties;
mod requests;
mod streams;

use pair::{End, Message, Pair};
