//! One shard on the reference store, driven step by step: each test checks one guarantee of the shard.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test")]

mod call_journal;
mod calls;
mod careful_recovery;
mod commit_limits;
mod containment;
mod continue_as_new;
mod crash_recovery;
mod damage;
mod dead_letters;
mod earlier_runs;
mod entities;
mod fsck;
mod harness;
mod held_calls;
mod history;
mod idempotency;
mod orders;
mod parent_items;
mod public_index;
mod retention;
mod session_events;
mod start;
mod store_failures;
mod trees;
