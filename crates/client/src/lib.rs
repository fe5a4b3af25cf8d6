//! A typed client of the Abide HTTP API: one struct with one method per API route.
//!
//! The crate has types for requests, responses and errors. It reuses connections, retries where a retry is safe, and
//! reads lists page by page. It takes no decision of its own: only the server decides what a request means.
//!
//! ```no_run
//! # async fn example() -> Result<(), abide_client::ClientError> {
//! use abide_client::{Client, NewInstance, StartOutcome};
//!
//! let client = Client::new("http://127.0.0.1:7070")?;
//! let start = NewInstance::new("greet").input(serde_json::json!({"name": "world"}));
//! match client.start(&start.wait(std::time::Duration::from_secs(10))).await? {
//!     StartOutcome::Ended(run) => println!("{}: {:?}", run.status, run.output),
//!     StartOutcome::Running(started) => println!("{} is still running", started.instance_id),
//! }
//! # Ok(())
//! # }
//! ```
//!
//! ```text
//!  Client::method ─► ClientRequest ─► retries, one deadline ─► Transport: pooled connections ─► T or raw JSON
//!                    Pages (lists) ─► one ClientRequest per page
//! ```

mod address;
mod backup;
mod calls;
mod client;
mod dead_letters;
mod entities;
mod error;
mod event_routes;
mod events;
pub mod history;
mod instance;
mod instances;
mod node;
mod pages;
mod request;
mod retry;
mod start;
mod transport;
mod workflows;

pub use backup::BackupStream;
pub use calls::{AttemptView, CallHistoryEvent, CallView, CallViewFilter, HoldView};
pub use client::{Client, DEFAULT_URL};
pub use dead_letters::{DeadLetter, DeadLetterFilter};
pub use entities::{Entity, EntityCallOutput, EntityEvent, EntitySummary};
pub use error::{ClientError, ErrorCode, ErrorDetail, ErrorResponse};
pub use event_routes::{EventRoute, RouteAction};
pub use events::{CloudEvent, DeadLetterKey, EventReceipt, EventReceiptStatus, EventReceipts};
pub use instance::{CompensationSteps, CurrentState, Failure, Instance, InstanceSummary, Status, WaitingFor};
pub use instances::{InstanceAck, InstanceFilter, PurgeOutcome, PurgeRequest, RewoundInstance, RewoundStep};
pub use node::{
    Activity, ActivityStats, EntityStats, InstanceStats, NodeHealth, NodeStats, ShardStats, StoreStats,
    StuckRun, StuckState,
};
pub use pages::Pages;
pub use request::ClientRequest;
pub use start::{NewInstance, StartOutcome, StartedInstance};
pub use workflows::{PublishedVersion, Validation, ValidationFinding, Workflow, WorkflowVersion};

/// A point in time, in the format of the API.
pub use jiff::Timestamp;
