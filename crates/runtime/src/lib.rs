//! The durable runtime: shards that own work and turn messages into commits.
//!
//! What is here so far decides *where* work lives ([`placement`]) and *who* may touch it ([`lease`]). Both are pure: time comes in as
//! data, and nothing here reads a clock, a store or a socket. docs/adr/0010 says what the rest will be.

pub mod lease;
pub mod placement;
