//! Behaviour of real VMs, booted through a zygote of their own and looked at from outside and inside.
//!
//! The tests hold for root and for an ordinary user; where the two differ, the test says so.

mod attempts;
mod boot;
mod harness;
mod hosts;
mod keeper;
mod limits;
mod list;
mod process;
mod spare;
mod tools;
mod tree;
