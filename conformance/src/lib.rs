//! Scenarios as data, drivers as programs, one judge: the same scenarios run through agentvm's SDK and through the
//! published TypeScript ones.
//!
//! A [`scenario`] is a YAML file of steps and what each must come to. A [`target`] names a driver, a program that
//! performs the steps over one SDK and [reports](report) what happened; the published SDKs are [installed](install) as
//! their lock files say. [`run`] starts drivers and bounds their time, [`judge`] compares, [`divergence`] knows what
//! differs and why, [`parity`] how much of the API's own tests does; [`table`] and [`junit`] show the outcome.

pub mod api;
pub mod divergence;
pub mod install;
pub mod judge;
pub mod junit;
pub mod overview;
pub mod parity;
pub mod report;
pub mod role;
pub mod run;
pub mod scenario;
pub mod table;
pub mod target;
