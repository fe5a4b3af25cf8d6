//! The root of the shard, together with `shard/mod.rs`: only these files see all components. `mod.rs` takes events,
//! fires due work and sends commits. The files here admit requests, process the queues of instances, merge units of
//! work, and hand out scanned pages.
//!
//! The root decides nothing that a component can decide.

mod admission;
mod apply_item;
mod careful;
mod instance_queue;
mod merge;
#[cfg(feature = "faults")]
mod planted_faults;
mod recovery;
mod scans;
mod turns;
