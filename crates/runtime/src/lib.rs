//! The durable runtime: shards that own work and turn messages into commits.
//!
//! What is here so far decides *where* work lives ([`placement`]), *who* may touch it ([`lease`]) and *what* it runs ([`definitions`]).
//! Time comes in as data: nothing here reads a clock. docs/adr/0010 says what the rest will be.

pub mod definitions;
pub mod lease;
pub mod placement;
