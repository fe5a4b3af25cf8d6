//! The specification of the language as tables of cases: one file per type of state or rule, all run by one `check`.
//!
//! `check` plays a case three times: plainly, rebuilt from its stored parts after every turn, and with the smallest
//! possible turns. All three must give the same story.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::needless_pass_by_value,
    clippy::type_complexity,
    reason = "a test that cannot continue panics, and helpers take owned values for convenience"
)]

mod bench;
mod bounds;
mod by_hand;
mod choice;
mod codec;
mod compensation;
mod compensation_retry;
mod data;
mod ends;
mod errors;
mod escalation;
mod evaluation;
mod events;
mod examples;
mod hardening;
mod identity;
mod limits;
mod loops;
mod orders;
mod parallel_map;
mod properties;
mod redrive;
mod retries;
mod schema;
mod turns;
mod validation;
mod waits;
mod workflows;
