//! What tests, the simulator, the rigs and the benchmarks share. For development only: no shipped crate uses it.
//!
//! It knows neither the server's configuration nor any workload: its users bring both.

pub mod effect_ledger;
pub mod http_client;
pub mod process;
pub mod shard_driver;
pub mod verdict;
pub mod virtual_time;
