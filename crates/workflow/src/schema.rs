//! JSON Schemas of inputs and results. The check itself is shared with dispatch.

pub use abide_evaluation::schema::{Mismatch, Schema, ShownValues};
