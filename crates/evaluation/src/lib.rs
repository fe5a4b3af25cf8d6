//! Evaluation of what authors wrote on data that others sent, on a budget: the budget itself, and the check of a value
//! against a JSON Schema. It knows no workflow, no activity and no store.
//!
//! Nothing is visited, copied or allocated before the budget is charged for it. What exceeds it is a typed error,
//! whatever the data. See docs/adr/0018.

mod budget;
pub mod memory;
pub mod schema;

pub use budget::{
    BudgetExhausted, EvaluationBudget, EvaluationLimitExceeded, EvaluationLimits, EvaluationResource,
};
