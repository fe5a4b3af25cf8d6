//! JSON workflows as a pure core: a definition is parsed, validated and compiled into a [`Plan`]; [`advance`] takes a run one
//! turn further and says what changed and what the world is to do.
//!
//! It is: a language, its checks, and a deterministic interpreter whose state is explicit and small.
//! It is not: a store, a clock, a scheduler or a client. Nothing here does I/O, reads time or draws random numbers; everything
//! arrives as data and leaves as data.
//!
//! ```
//! use abide_workflow::{Authored, Instance, InstanceId, Limits, Origin, RunNumber, Timestamp, advance};
//!
//! let plan = Authored::parse(r#"{
//!     "$schema": "workflow-schema-v1.json", "id": "hello", "version": "1.0.0",
//!     "startAt": "Done", "states": {"Done": {"type": "succeed", "output": "$.input.name"}}
//! }"#)
//! .validate(None)
//! .expect("it is valid")
//! .compile();
//!
//! let mut origin = Origin::new(InstanceId::new("hello-1")?, RunNumber(1), &plan);
//! origin.input = serde_json::json!({"name": "world"}).into();
//! let now = Timestamp(0);
//! let mut instance = Instance::pending(origin, now);
//! let turn = advance(&plan, &mut instance, &[], now, &Limits::default())?;
//! assert_eq!(turn.status, abide_workflow::Status::Completed);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod advance;
pub mod command;
pub mod condition;
pub mod definition;
pub mod failure;
pub mod finding;
mod flow;
pub mod graph;
pub mod history;
pub mod ids;
pub mod instance;
pub mod json;
pub mod limits;
pub mod message;
pub mod path;
pub mod plan;
pub mod registry;
pub mod rehearse;
pub mod schema;
mod scope;
pub mod time;
pub mod turn;
pub mod validate;

pub use advance::advance;
pub use definition::Authored;
pub use failure::Failure;
pub use finding::{Code, Finding, Severity};
pub use ids::{CommandId, ExecutionId, InstanceId, PlanHash, RunNumber};
pub use instance::{Corrupt, Instance, Origin, Outcome, PartKey, Status};
pub use limits::{Limits, TurnLimits};
pub use message::{Message, Refusal};
pub use plan::Plan;
pub use registry::Registry;
pub use time::{Duration, Timestamp};
pub use turn::{GivenUp, PartChange, Turn};
pub use validate::{Rejected, Validated};

/// The JSON Schema of definitions, for editors: `workflow-schema-v1.json`.
pub const WORKFLOW_SCHEMA: &str = include_str!("../workflow-schema-v1.json");
