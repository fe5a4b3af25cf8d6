//! The budget of an evaluation: steps and bytes, charged before a value is visited or made. It does not know what is
//! evaluated.
//!
//! Data chooses how much a path, a template or a condition costs, so no bound on the definition alone bounds it. What
//! exceeds the budget is an error of the run, whatever the data. See docs/adr/0018.

use std::cell::Cell;
use std::fmt;

use serde_json::Value;

use crate::memory;

/// What one evaluation may use at most: everything that one state evaluates when it is entered, or one message when it
/// is applied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EvaluationLimits {
    /// Values visited and comparisons made.
    pub steps_max: u64,
    /// Bytes of memory for the values that are made.
    pub bytes_max: u64,
}

impl Default for EvaluationLimits {
    fn default() -> Self {
        Self { steps_max: 10_000_000, bytes_max: 48 * 1024 * 1024 }
    }
}

/// What an evaluation ran out of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EvaluationResource {
    Steps,
    Bytes,
}

impl fmt::Display for EvaluationResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Steps => "steps",
            Self::Bytes => "bytes of memory",
        })
    }
}

/// The budget is used up. Small, because every step of an evaluation may return it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BudgetExhausted {
    resource: EvaluationResource,
    limit: u64,
}

impl BudgetExhausted {
    /// Names the path or rule that was being evaluated.
    pub fn at(self, place: &str) -> EvaluationLimitExceeded {
        EvaluationLimitExceeded { at: place.to_owned(), resource: self.resource, limit: self.limit }
    }
}

/// An evaluation would have needed more than its budget.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{at} needs more than {limit} {resource} on this data")]
pub struct EvaluationLimitExceeded {
    /// The path or rule that was being evaluated.
    pub at: String,
    pub resource: EvaluationResource,
    /// The limit that would have been exceeded.
    pub limit: u64,
}

/// The rest of a budget. Shared by everything that is evaluated together, so it counts behind a shared reference.
#[derive(Debug)]
pub struct EvaluationBudget {
    limits: EvaluationLimits,
    steps_left: Cell<u64>,
    bytes_left: Cell<u64>,
    /// Used before the last renewal.
    earlier: Cell<(u64, u64)>,
}

impl EvaluationBudget {
    pub fn new(limits: EvaluationLimits) -> Self {
        Self {
            limits,
            steps_left: Cell::new(limits.steps_max),
            bytes_left: Cell::new(limits.bytes_max),
            earlier: Cell::default(),
        }
    }

    /// Steps and bytes used so far, those before renewals included.
    pub fn used(&self) -> (u64, u64) {
        let (steps, bytes) = self.earlier.get();
        let steps_now = self.limits.steps_max.saturating_sub(self.steps_left.get());
        let bytes_now = self.limits.bytes_max.saturating_sub(self.bytes_left.get());
        (steps.saturating_add(steps_now), bytes.saturating_add(bytes_now))
    }

    /// Makes the whole budget available again.
    pub fn renew(&self) {
        self.earlier.set(self.used());
        self.steps_left.set(self.limits.steps_max);
        self.bytes_left.set(self.limits.bytes_max);
    }

    /// Charges steps before they are made. An exhausted budget stays exhausted, so that no cheaper part of the same
    /// evaluation goes on.
    #[inline]
    pub fn charge_steps(&self, steps: u64) -> Result<(), BudgetExhausted> {
        charge(&self.steps_left, steps)
            .ok_or(BudgetExhausted { resource: EvaluationResource::Steps, limit: self.limits.steps_max })
    }

    /// Charges bytes before they are allocated.
    #[inline]
    pub fn charge_bytes(&self, bytes: u64) -> Result<(), BudgetExhausted> {
        charge(&self.bytes_left, bytes)
            .ok_or(BudgetExhausted { resource: EvaluationResource::Bytes, limit: self.limits.bytes_max })
    }

    /// Checks that so many bytes are left which are free again before anything else is charged.
    pub fn check_bytes(&self, bytes: u64) -> Result<(), BudgetExhausted> {
        let left = self.bytes_left.get();
        self.charge_bytes(bytes)?;
        self.bytes_left.set(left);
        Ok(())
    }

    /// Charges the work of reading a text once.
    #[inline]
    pub fn charge_text(&self, bytes: usize) -> Result<(), BudgetExhausted> {
        const BYTES_PER_STEP: u64 = 32;
        self.charge_steps(1 + bytes as u64 / BYTES_PER_STEP)
    }

    /// Charges a copy of a value: one step for each value in it, and the memory of all.
    pub fn charge_copy(&self, value: &Value) -> Result<(), BudgetExhausted> {
        self.charge_steps(1)?;
        match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => Ok(()),
            Value::String(text) => self.charge_bytes(text.len() as u64),
            Value::Array(items) => {
                self.charge_bytes(memory::array(items.len()))?;
                items.iter().try_for_each(|item| self.charge_copy(item))
            }
            Value::Object(fields) => {
                self.charge_bytes(memory::object(fields.len()))?;
                fields.iter().try_for_each(|(name, field)| {
                    self.charge_bytes(name.len() as u64)?;
                    self.charge_copy(field)
                })
            }
        }
    }

    /// Copies a value on the budget.
    pub fn copy(&self, value: &Value) -> Result<Value, BudgetExhausted> {
        self.charge_copy(value)?;
        Ok(value.clone())
    }
}

fn charge(left: &Cell<u64>, amount: u64) -> Option<()> {
    let rest = left.get().checked_sub(amount);
    left.set(rest.unwrap_or(0));
    rest.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_copy_is_charged_before_it_is_made_and_an_exhausted_budget_stays_exhausted() {
        let budget = EvaluationBudget::new(EvaluationLimits { steps_max: 10, bytes_max: 1_000 });
        assert_eq!(budget.copy(&json!([1, "ab"])), Ok(json!([1, "ab"])));
        assert_eq!(budget.used(), (3, 2 * 32 + 2));
        let exhausted = budget.copy(&json!([1, 2, 3, 4, 5, 6, 7])).unwrap_err().at("$.input");
        assert_eq!(exhausted.to_string(), "$.input needs more than 10 steps on this data");
        assert!(budget.copy(&json!(1)).is_err(), "a cheaper part does not go on");
        budget.renew();
        let exhausted = budget.copy(&json!("x".repeat(1_001))).unwrap_err().at("$.input");
        assert_eq!(exhausted.resource, EvaluationResource::Bytes);
    }
}
