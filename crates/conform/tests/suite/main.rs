//! Runs the checks against a receiver that keeps the contract, and against receivers with one planted fault each.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]

mod fault_injection;
mod faults;
mod fixture;
mod receiver;
