//! Ids, digests and moments that every crate shares, as newtypes: a value of one kind cannot be passed for another.
//!
//! The caller supplies the values: nothing here reads a clock, draws a random number or does I/O. Each type is stored
//! as the bare value inside it.

#[cfg(feature = "proptest")]
mod arbitrary;
pub mod digest;
pub mod idempotency_key;
pub mod run;
pub mod time;

pub use digest::{Digest, KeyDigest};
pub use idempotency_key::IdempotencyKey;
pub use run::{CommandId, PageNumber, RunId, RunNumber, Sequence};
pub use time::{Duration, TimeError, Timestamp};
