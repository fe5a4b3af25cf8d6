//! Patterns of a schema, and what matching one costs. The engine has a linear running time; the factor is the size of
//! the compiled pattern.

use regex::{Regex, RegexBuilder};

use crate::{BudgetExhausted, EvaluationBudget};

/// Bytes that a compiled pattern may take.
pub(super) const PATTERN_BYTES_MAX: usize = 1 << 20;

/// A compiled pattern.
#[derive(Debug)]
pub(super) struct Pattern {
    regex: Regex,
    /// Sixteenths of a step for each byte of a text.
    weight: u64,
}

impl Pattern {
    pub(super) fn compile(text: &str) -> Result<Self, String> {
        let invalid = || format!("{text:?} is not a pattern that can be matched in linear time");
        let translated = jsonschema_regex::to_rust_regex(text).map_err(|()| invalid())?;
        let with_limit = |limit: usize| RegexBuilder::new(&translated).size_limit(limit).build();
        // The engine does not tell the size of a pattern, so it is found by the limit that the pattern keeps.
        let sizes = (0..).map(|power| 1024_usize << power).take_while(|size| *size <= PATTERN_BYTES_MAX);
        let (size, regex) =
            sizes.filter_map(|size| Some((size, with_limit(size).ok()?))).next().ok_or_else(invalid)?;
        // Large patterns leave the fast engine sooner, so they weigh more than their size.
        let kibibytes = size as u64 / 1024;
        let weight = if kibibytes <= 64 { kibibytes } else { kibibytes * 8 };
        Ok(Self { regex, weight })
    }

    /// Charges one match with a text of this length.
    pub(super) fn charge(&self, text_bytes: usize, budget: &EvaluationBudget) -> Result<(), BudgetExhausted> {
        budget.charge_steps(1 + (text_bytes as u64).saturating_mul(self.weight) / 16)
    }

    pub(super) fn is_match(&self, text: &str, budget: &EvaluationBudget) -> Result<bool, BudgetExhausted> {
        self.charge(text.len(), budget)?;
        Ok(self.regex.is_match(text))
    }
}
