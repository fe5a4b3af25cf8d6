//! A typed client of the HTTP interface: one struct, a method per route.
//!
//! It is: requests, answers and errors as types, connections that are kept, repeats where a repeat is safe, and lists page by page. It is
//! not: a second place that decides anything; what a request means is for the server to say.
//!
//! ```no_run
//! # async fn example() -> Result<(), abide_client::ClientError> {
//! use abide_client::{Client, Start, StartOutcome};
//!
//! let client = Client::new("http://127.0.0.1:7070")?;
//! let start = Start::of("greet").input(serde_json::json!({"name": "world"}));
//! match client.start(&start.wait(std::time::Duration::from_secs(10))).await? {
//!     StartOutcome::Ended(run) => println!("{}: {:?}", run.status, run.output),
//!     StartOutcome::Running(begun) => println!("{} goes on", begun.instance_id),
//! }
//! # Ok(())
//! # }
//! ```
//!
//! ```text
//!  Client::method ─► Call (what is asked) ─► repeats, within one deadline ─► Transport: kept connections ─► envelope ─► T, or the raw JSON
//!                    Pages (lists) ─► a Call per page
//! ```

mod address;
mod call;
mod client;
mod dead_letters;
mod dispatches;
mod entities;
mod error;
mod events;
pub mod history;
mod instance;
mod instances;
mod node;
mod pages;
mod retry;
mod routes;
mod start;
mod transport;
mod workflows;

pub use call::Call;
pub use client::{Client, DEFAULT_URL};
pub use dead_letters::{DeadLetter, DeadLetterFilter};
pub use dispatches::{Dispatch, DispatchAttempt, DispatchDelivery, DispatchFilter};
pub use entities::{Called, Entity, EntityEvent, EntitySummary};
pub use error::{ClientError, Code, Detail, Refusal};
pub use events::{CloudEvent, DeadLetterKey, Receipt, ReceiptStatus, Received};
pub use instance::{CurrentState, Failure, Instance, InstanceSummary, Status, WaitingFor};
pub use instances::{InstanceFilter, Named, Purge, Purged};
pub use node::{
    Activity, ActivityStats, EntityStats, Health, InstanceStats, ShardStats, Stats, StoreStats, Stuck,
    StuckAt,
};
pub use pages::Pages;
pub use routes::{Action, Route};
pub use start::{Start, StartOutcome, Started};
pub use workflows::{Finding, Published, Validation, Version, Workflow};

/// A moment, as the interface writes it.
pub use jiff::Timestamp;
