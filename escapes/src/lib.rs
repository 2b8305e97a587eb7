//! What hostile guests try against a VM, what each attempt must get, and whether it did.
//!
//! The program `attacker` makes the attempts, in a VM as `agentos` and as root; `expected` says what each must get and
//! `judge` compares. Each attempt has a positive control, made in throw-away namespaces without our protections or, if
//! it only looks, on the host: an attempt that could not succeed anywhere would prove nothing.

pub mod expected;
mod facts;
mod judge;
mod run;
mod scene;

pub use judge::{Judged, Verdict};
pub use run::{Guest, enforces, run};
pub use scene::Scene;
