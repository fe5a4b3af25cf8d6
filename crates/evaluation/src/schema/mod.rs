//! JSON Schema checks on a budget, with schemas that are compiled once.
//!
//! The library `jsonschema` decides what is a schema and checks single values (types, bounds, lengths, formats). Our
//! own code applies subschemas to the parts of a value, because it can be charged and stopped. A schema refers to
//! nothing outside itself, and its size with all references expanded is bounded.

mod applied;
mod compile;
mod keywords;
mod mismatch;
mod pattern;
mod places;

use std::sync::Arc;

use serde_json::Value;

use crate::{EvaluationBudget, EvaluationLimitExceeded, EvaluationLimits};
use applied::Checker;
use keywords::Node;
pub use mismatch::{Mismatch, ShownValues};
use mismatch::{Place, Report};

/// A compiled schema.
#[derive(Clone, Debug)]
pub struct Schema(Arc<Node>);

impl Schema {
    /// Compiles a schema of draft 2020-12, or of the draft its `$schema` names.
    ///
    /// References must stay inside the schema and must not be circular. Their expansion is bounded, because otherwise a
    /// schema of a few lines can take years.
    pub fn compile(schema: &Value) -> Result<Self, String> {
        places::check(schema)?;
        compile::compile(schema).map(Self)
    }

    /// The places where a value does not match, at most `max` of them.
    pub fn check(
        &self,
        value: &Value,
        budget: &EvaluationBudget,
        shown: ShownValues,
        max: usize,
    ) -> Result<Vec<Mismatch>, EvaluationLimitExceeded> {
        let mut report = Report::new(shown, max);
        let checked = Checker { budget }.check(&self.0, value, Place::ROOT, &mut report);
        checked.map_err(|exhausted| exhausted.at("the check against the schema"))?;
        Ok(report.into_mismatches())
    }

    /// The places where a value does not match. A check that exceeds the default budget is a mismatch too: nobody knows
    /// whether the value matches.
    pub fn mismatches(&self, value: &Value) -> Vec<Mismatch> {
        /// Mismatches reported at once; a value may have thousands.
        const MISMATCHES_MAX: usize = 20;
        let budget = EvaluationBudget::new(EvaluationLimits::default());
        self.check(value, &budget, ShownValues::Truncated, MISMATCHES_MAX)
            .unwrap_or_else(|exceeded| vec![Mismatch::undecided(&exceeded)])
    }

    /// True if a value matches the schema, as far as the default budget reaches.
    pub fn is_valid(&self, value: &Value) -> bool {
        let budget = EvaluationBudget::new(EvaluationLimits::default());
        let mut report = Report::quiet();
        Checker { budget: &budget }.check(&self.0, value, Place::ROOT, &mut report) == Ok(true)
    }
}

impl PartialEq for Schema {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

#[cfg(test)]
mod oracle;
#[cfg(test)]
mod tests;
