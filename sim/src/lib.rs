//! A cluster in one thread, by seed: several nodes run the real shards on the reference store, while time, delays, failures and the order of
//! everything come from the dice. The same seed gives the same run.
//!
//! Clients and activities keep ledgers of their own; when the storm is over and everything has come to rest, [`verdict`] compares.
//!
//! [`matrix`] leaves nothing to dice: one process, and each example stopped at every point there is.
//!
//! Nothing here reads a clock or starts a thread.

#![expect(clippy::indexing_slicing, reason = "a simulation is a test: what is not there is a mistake in it")]

mod carrying;
pub mod clients;
pub mod cluster;
pub mod counts;
mod digest;
mod happening;
mod history;
pub mod matrix;
mod nodes;
pub mod outside;
mod shown;
mod traffic;
mod truth;
pub mod verdict;
pub mod workload;

use abide_runtime::planted::Bug;

pub use cluster::Cluster;
pub use counts::Counts;
pub use digest::Digest;
pub use verdict::Verdict;

/// What one simulation is like.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// Where the dice begin.
    pub seed: u64,
    /// Nodes.
    pub nodes: usize,
    /// Shards.
    pub shards: u32,
    /// Runs that clients start.
    pub runs: usize,
    /// How long the storm lasts, in simulated milliseconds.
    pub storm_ms: u64,
    /// Whether anything goes wrong at all.
    pub faults: bool,
    /// Whether commits are as small as on Azure.
    pub azure: bool,
    /// Whether runs are kept for minutes only: in the end nothing must be left.
    pub short: bool,
    /// A mistake to make.
    pub bug: Option<Bug>,
}

impl Scenario {
    /// Three nodes, everything that can go wrong.
    pub fn stormy(seed: u64) -> Self {
        Self {
            seed,
            nodes: 3,
            shards: 4,
            runs: 24,
            storm_ms: 600_000,
            faults: true,
            azure: seed % 2 == 1,
            short: seed % 3 == 2,
            bug: None,
        }
    }
}

/// Plays a scenario to its end, and tells what happened to one instance.
pub fn tell(scenario: Scenario, instance_id: &str) -> (Vec<String>, Verdict) {
    let mut cluster = Cluster::new(scenario);
    cluster.told_of = instance_id.to_owned();
    cluster.run();
    (std::mem::take(&mut cluster.told), verdict::judge(&cluster))
}

/// Plays a scenario to its end.
pub fn play(scenario: Scenario) -> Verdict {
    let mut cluster = Cluster::new(scenario);
    cluster.run();
    verdict::judge(&cluster)
}

/// Plays a scenario to its end, and gives the digest of all that its shards asked for.
pub fn digest(scenario: Scenario) -> Digest {
    let mut cluster = Cluster::new(scenario);
    cluster.run();
    cluster.digest
}
