//! The language as a specification: tables of cases, one file per kind of state or rule, each read by one `check`.
//!
//! `check` plays a case three times: as it is, rebuilt from its stored parts after every turn, and with the smallest turns there
//! may be. All three must tell the same story.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::needless_pass_by_value,
    clippy::type_complexity,
    reason = "a test that cannot go on panics, and helpers are called with what is at hand"
)]

mod bench;
mod bounds;
mod by_hand;
mod choice;
mod codec;
mod compensation;
mod data;
mod ends;
mod errors;
mod escalation;
mod events;
mod examples;
mod hardening;
mod identity;
mod limits;
mod loops;
mod orders;
mod parallel_map;
mod properties;
mod retries;
mod schema;
mod turns;
mod validation;
mod waits;
mod workflows;
