//! Runs the checks against receivers with one planted fault each. A receiver without one is checked by its own tests,
//! in crates/receiver.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]

mod fault_injection;
mod faults;
mod fixture;
