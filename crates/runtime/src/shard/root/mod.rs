//! The root of the shard: the only files that see all components. They admit requests, process the queues of
//! instances, merge units of work, and hand scanned pages to those who asked for them.
//!
//! The root decides nothing that a component can decide.

mod admission;
mod apply_item;
mod instance_queue;
mod merge;
#[cfg(feature = "faults")]
mod planted_faults;
mod recovery;
mod scans;
mod turns;
