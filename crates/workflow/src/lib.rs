//! JSON workflows as a pure core: a definition is parsed, validated and compiled into a [`Plan`]; [`advance()`] moves a
//! run one turn further and returns the changes and the commands to execute.
//!
//! This crate is a language, its checks, and a deterministic interpreter whose state is explicit and small.
//! It is not a store, a clock, a scheduler or a client. Nothing here does I/O, reads time or draws random numbers;
//! everything arrives as data and leaves as data.
//!
//! ```
//! use abide_workflow::{Instance, InstanceId, Limits, ParsedDefinition, RunNumber, RunOrigin, Timestamp, advance};
//!
//! let plan = ParsedDefinition::parse(r#"{
//!     "$schema": "workflow-schema-v1.json", "id": "hello", "version": "1.0.0",
//!     "startAt": "Done", "states": {"Done": {"type": "succeed", "output": "$.input.name"}}
//! }"#)
//! .validate(None)
//! .expect("the definition is valid")
//! .compile();
//!
//! let mut origin = RunOrigin::new(InstanceId::new("hello-1")?, RunNumber(1), &plan);
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
pub mod turn;
pub mod validate;

pub use abide_evaluation as evaluation;
pub use abide_ids::time;
pub use advance::{advance, is_named_non_retryable};
pub use definition::ParsedDefinition;
pub use failure::Failure;
pub use finding::{Code, Finding, Severity};
pub use ids::{CommandId, ExecutionId, InstanceId, PlanHash, RunNumber};
pub use instance::{CorruptInstance, Instance, Outcome, PartKey, RunOrigin, Status};
pub use limits::{Limits, TurnLimits};
pub use message::{Message, MessageRefusal};
pub use plan::Plan;
pub use registry::Registry;
pub use time::{Duration, Timestamp};
pub use turn::{NoRetryReason, PartChange, Turn};
pub use validate::{ValidatedDefinition, ValidationError};

/// The JSON Schema of definitions, for editors: `workflow-schema-v1.json`.
pub const WORKFLOW_SCHEMA: &str = include_str!("../workflow-schema-v1.json");
