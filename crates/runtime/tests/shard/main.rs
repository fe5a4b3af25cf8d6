//! One shard on the reference store, moved by hand: what it promises, promise by promise.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test")]

mod calls;
mod chains;
mod damage;
mod earlier_runs;
mod entities;
mod fsck;
mod given_up;
mod histories;
mod items;
mod journal;
mod keeping;
mod limits;
mod public;
mod repeats;
mod restarts;
mod routed;
mod starts;
mod trouble;
mod world;
