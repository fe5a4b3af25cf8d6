//! The checks against receivers: one that keeps the contract, and many that nearly do.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]

mod mistakes;
mod planted;
mod receiver;
mod world;
