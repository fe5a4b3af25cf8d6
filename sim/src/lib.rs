//! Simulates a cluster in one thread: several nodes run the real shards on the reference store. Time, delays, failures
//! and the order of events come from a seeded random generator, so the same seed gives the same run.
//!
//! Clients and activities keep their own ledgers. Once the storm is over and the cluster is quiescent, [`verdict`]
//! compares the ledgers with the store.
//!
//! [`matrix`] uses no randomness: it runs one process and crashes each example at every crash point.
//!
//! Nothing here reads a clock or starts a thread.

#![expect(clippy::indexing_slicing, reason = "a simulation is a test: an index out of bounds is a bug in it")]

pub mod activities;
mod client_requests;
pub mod clients;
pub mod cluster;
pub mod counts;
mod digest;
mod effects;
pub mod matrix;
mod model;
mod nodes;
mod public_index_check;
mod row_order;
mod run_history;
mod sim_event;
pub mod verdict;
pub mod workload;

use abide_runtime::fault_injection::Fault;

pub use cluster::Cluster;
pub use counts::SimCounts;
pub use digest::BehaviourDigest;
pub use verdict::SimVerdict;

/// The parameters of one simulation.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// Seeds the random generator.
    pub seed: u64,
    pub nodes: usize,
    pub shards: u32,
    /// How many runs clients start.
    pub runs: usize,
    /// How long the storm lasts, in simulated milliseconds.
    pub storm_ms: u64,
    /// True if crashes, pauses and failures are injected at all.
    pub faults: bool,
    /// True if commits are limited to the size that Azure allows.
    pub azure: bool,
    /// True if runs are kept for minutes only: at the end no row must be left.
    pub short_retention: bool,
    /// True if every turn but the first of one instance ends the process.
    pub poisoned: bool,
    /// The planted fault, if any.
    pub injected_fault: Option<Fault>,
}

impl Scenario {
    /// Three nodes and every kind of failure.
    pub fn stormy(seed: u64) -> Self {
        Self {
            seed,
            nodes: 3,
            shards: 4,
            runs: 24,
            storm_ms: 600_000,
            faults: true,
            azure: seed % 2 == 1,
            short_retention: seed % 3 == 2,
            poisoned: false,
            injected_fault: None,
        }
    }

    /// A storm in which this fault is planted and can do harm.
    pub fn with_fault(seed: u64, fault: Fault) -> Self {
        Self { injected_fault: Some(fault), poisoned: fault == Fault::MarkNotWritten, ..Self::stormy(seed) }
    }
}

/// Plays a scenario to its end and returns a trace of one instance.
pub fn play_traced(scenario: Scenario, instance_id: &str) -> (Vec<String>, SimVerdict) {
    let mut cluster = Cluster::new(scenario);
    cluster.traced_instance = instance_id.to_owned();
    cluster.run();
    (std::mem::take(&mut cluster.instance_trace), verdict::judge(&cluster))
}

/// Plays a scenario to its end.
pub fn play(scenario: Scenario) -> SimVerdict {
    let mut cluster = Cluster::new(scenario);
    cluster.run();
    verdict::judge(&cluster)
}

/// Plays a scenario to its end and returns the digest of all effects of its shards.
pub fn digest(scenario: Scenario) -> BehaviourDigest {
    let mut cluster = Cluster::new(scenario);
    cluster.run();
    BehaviourDigest {
        row_order: cluster.row_order.digest(),
        final_rows: row_order::final_rows(&cluster),
        ..cluster.digest
    }
}
