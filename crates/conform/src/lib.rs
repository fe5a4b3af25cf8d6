//! Checks whether a receiver keeps the dispatch contract: any receiver, in any language, over any of the four wires.
//!
//! ```text
//!  ConformOptions ─► Harness ─► checks in order ─► ConformReport: passed, failed (expected, found), skipped (reason)
//!                       │
//!                       └─ TestRequest ─► encoded for the wire ─► one exchange per connection ─► ReceiverResponse
//! ```
//! The receiver serves the activity `conformance`, which counts how often it really ran. docs/reference/dispatch.md
//! describes that activity and the rules. Encodings are those of `abide-dispatch`; only requests that no sender would
//! make are written here by hand. Each exchange and the whole check have a time limit, so a receiver that hangs breaks
//! a rule instead of hanging the check.
//!
//! This crate knows nothing of workflows, stores, or how a report is shown. It draws no random numbers and reads no
//! clock: the unique prefix of a run and the current time are passed in.

mod checks;
mod harness;
mod http_client;
mod raw_encoding;
mod receiver_url;
mod report;
mod response;
mod test_request;
mod violation;

pub use abide_dispatch::remote::WireFormat;
pub use receiver_url::ReceiverUrlError;
pub use report::{CheckReport, CheckVerdict, ConformReport, run};

use std::fmt;
use std::time::Duration;

use abide_ids::Timestamp;

/// The receiver to check, and how to check it.
#[derive(Clone)]
pub struct ConformOptions {
    /// URL of the activity. Without a path, `/activities/{activity}` is used. Over gRPC only the server part counts.
    pub url: String,
    pub transport: WireFormat,
    /// The receiver's name for the activity `conformance`.
    pub activity: String,
    /// Sent as `Authorization: Bearer …` with every request.
    pub bearer_token: Option<String>,
    /// Time limit of connecting, and again of one request with its response.
    pub exchange_timeout: Duration,
    /// Time limit of all checks together.
    pub total_timeout: Duration,
    /// Unique to this run of the checks: prefix of execution ids and counter tags. Letters, digits and dashes.
    pub unique_prefix: String,
    /// The current time. Deadlines are an hour away from it, so it need not be exact.
    pub now: Timestamp,
}

impl fmt::Debug for ConformOptions {
    /// Leaves out the bearer token, which is a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConformOptions")
            .field("url", &self.url)
            .field("transport", &self.transport)
            .field("activity", &self.activity)
            .finish_non_exhaustive()
    }
}

/// Why the receiver could not be checked.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ConformError {
    #[error(transparent)]
    Url(#[from] ReceiverUrlError),
    #[error("invalid bearer token: a header cannot carry it")]
    BearerToken,
    /// No connection could be made for the first check.
    #[error("the receiver cannot be reached: {reason}")]
    Unreachable {
        /// The address that was tried, and the error.
        reason: String,
    },
}
