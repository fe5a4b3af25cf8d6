//! Finds out whether a receiver keeps the dispatch contract: any receiver, in any language, over any of the four wires.
//!
//! ```text
//!  Setting ─► Bench ─► checks, one after the other ─► Report: passed, failed (expected, found), skipped (why)
//!               │
//!               └─ Delivery ─► spelled for the wire ─► one exchange over a connection of its own ─► Answer
//! ```
//! The receiver serves the activity `conformance`, which counts how often it really ran; docs/reference/dispatch.md has it, and the rules.
//! Encodings are those of `abide-dispatch`; only what no sender would send is written here by hand. Every exchange and the whole have a
//! limit in time, so that a receiver that hangs has broken a rule rather than the check.
//!
//! This crate knows nothing of workflows, stores, or how a report is shown. It draws no random numbers and reads no clock: what makes a
//! run unique, and when it is, come in as data.

mod answer;
mod bench;
mod checks;
mod delivery;
mod exchange;
mod place;
mod report;
mod spelling;
mod unmet;

pub use abide_dispatch::remote::Wire;
pub use place::PlaceError;
pub use report::{Finding, Report, Verdict, run};

use std::fmt;
use std::time::Duration;

/// Who is checked, and how.
#[derive(Clone)]
pub struct Setting {
    /// Where the activity is; of a server alone, it is at `/activities/{activity}`. Over gRPC only the server counts.
    pub url: String,
    /// Over which wire.
    pub transport: Wire,
    /// What the receiver calls the activity `conformance`.
    pub activity: String,
    /// A token that every request shows.
    pub bearer: Option<String>,
    /// How long one exchange may take.
    pub exchange_time_max: Duration,
    /// How long all of it may take.
    pub whole_time_max: Duration,
    /// A word that no other run has: executions and counters are named by it. Letters, digits and dashes.
    pub unique: String,
    /// Now. Deadlines are an hour away from it, so it need not be exact.
    pub now_epoch_ms: i64,
}

impl fmt::Debug for Setting {
    /// The token is a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Setting")
            .field("url", &self.url)
            .field("transport", &self.transport)
            .field("activity", &self.activity)
            .finish_non_exhaustive()
    }
}

/// Why nothing could be found out.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ConformError {
    /// An address that is none.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// A token that no header can carry.
    #[error("the bearer token cannot stand in a header")]
    Bearer,
    /// Nobody is there.
    #[error("the receiver cannot be reached: {reason}")]
    Unreachable {
        /// What was tried, and what came of it.
        reason: String,
    },
}
