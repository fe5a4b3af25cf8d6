//! Evaluation of the conditions of `choice` and `match`. Their JSON form is read in `definition`.
//!
//! A path without a value and a comparison of types that cannot be compared are false; `eq` and `ne` compare any two
//! JSON values. So evaluation fails only if it would exceed its budget.

use std::cmp::Ordering;

use serde_json::Value;

use crate::evaluation::{BudgetExhausted, EvaluationBudget, EvaluationLimitExceeded};
use crate::json;
use crate::limits::definition::{GLOB_BYTES_MAX, GLOB_TEXT_BYTES_MAX};
use crate::path::{Path, Roots};

/// A compiled condition.
#[derive(Clone, PartialEq, Debug)]
pub enum Condition {
    Test {
        /// The value on the left.
        path: Path,
        op: Op,
        /// The value on the right.
        operand: Operand,
    },
    And(Vec<Condition>),
    Or(Vec<Condition>),
    Not(Box<Condition>),
}

/// The right side of a comparison.
#[derive(Clone, PartialEq, Debug)]
pub enum Operand {
    /// The operator needs none.
    None,
    /// The literal `value`.
    Value(Value),
    /// The value at `valuePath`.
    Path(Path),
}

macro_rules! operators {
    ($($(#[$doc:meta])* $name:ident = $text:literal;)*) => {
        /// A comparison operator.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Op { $($(#[$doc])* $name,)* }

        impl Op {
            /// The names of all operators.
            pub const NAMES: &'static [&'static str] = &[$($text,)*];

            /// The operator of this name.
            pub fn named(name: &str) -> Option<Self> {
                match name { $($text => Some(Self::$name),)* _ => None }
            }
        }
    };
}

operators! {
    Eq = "eq";
    Ne = "ne";
    /// Greater: numbers, or strings by their characters. The other orderings compare the same way.
    Gt = "gt";
    Gte = "gte";
    Lt = "lt";
    Lte = "lte";
    /// The right side is an array that contains the left side.
    In = "in";
    /// The left side is an array that contains the right side, or a string that contains it.
    Contains = "contains";
    StartsWith = "startsWith";
    EndsWith = "endsWith";
    /// A string matches a glob: `*` any characters, `?` one, `\` takes the next literally.
    Matches = "matches";
    /// The value is present, and null.
    IsNull = "isNull";
    IsPresent = "isPresent";
    IsString = "isString";
    IsNumber = "isNumber";
    IsBoolean = "isBoolean";
    IsArray = "isArray";
    IsObject = "isObject";
}

impl Op {
    /// True if the operator needs a right side.
    pub fn takes_operand(self) -> bool {
        !matches!(
            self,
            Self::IsNull
                | Self::IsPresent
                | Self::IsString
                | Self::IsNumber
                | Self::IsBoolean
                | Self::IsArray
                | Self::IsObject
        )
    }
}

impl Condition {
    /// Evaluates the condition over the given data.
    pub fn holds(&self, roots: &dyn Roots) -> Result<bool, EvaluationLimitExceeded> {
        match self {
            Self::And(all) => {
                for condition in all {
                    if !condition.holds(roots)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            Self::Or(any) => {
                for condition in any {
                    if condition.holds(roots)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            Self::Not(condition) => Ok(!condition.holds(roots)?),
            Self::Test { path, op, operand } => {
                let Some(left) = path.find(roots)? else { return Ok(false) };
                let compared = match operand {
                    Operand::None => compare(&left, *op, &Value::Null, roots.budget()),
                    Operand::Value(right) => compare(&left, *op, right, roots.budget()),
                    Operand::Path(right) => match right.find(roots)? {
                        Some(right) => compare(&left, *op, &right, roots.budget()),
                        None => Ok(false),
                    },
                };
                compared.map_err(|exhausted| exhausted.at(path.text()))
            }
        }
    }

    /// The paths that the condition reads.
    pub fn paths(&self) -> Vec<&Path> {
        match self {
            Self::And(conditions) | Self::Or(conditions) => conditions.iter().flat_map(Self::paths).collect(),
            Self::Not(condition) => condition.paths(),
            Self::Test { path, operand: Operand::Path(right), .. } => vec![path, right],
            Self::Test { path, .. } => vec![path],
        }
    }
}

fn compare(left: &Value, op: Op, right: &Value, budget: &EvaluationBudget) -> Result<bool, BudgetExhausted> {
    let is_ordered =
        |expected: fn(Ordering) -> bool| Ok(json::order(left, right, budget)?.is_some_and(expected));
    Ok(match op {
        Op::Eq => return json::equal(left, right, budget),
        Op::Ne => !json::equal(left, right, budget)?,
        Op::Gt => return is_ordered(Ordering::is_gt),
        Op::Gte => return is_ordered(Ordering::is_ge),
        Op::Lt => return is_ordered(Ordering::is_lt),
        Op::Lte => return is_ordered(Ordering::is_le),
        Op::In => match right.as_array() {
            Some(array) => return has_element(array, left, budget),
            None => false,
        },
        Op::Contains => match (left, right) {
            (Value::Array(array), item) => return has_element(array, item, budget),
            (Value::String(text), Value::String(part)) => {
                budget.charge_text(text.len().saturating_add(part.len()))?;
                text.contains(part.as_str())
            }
            _ => false,
        },
        Op::StartsWith => strings(left, right, budget)?.is_some_and(|(text, part)| text.starts_with(part)),
        Op::EndsWith => strings(left, right, budget)?.is_some_and(|(text, part)| text.ends_with(part)),
        Op::Matches => match strings(left, right, budget)? {
            Some((text, glob)) => return glob_matches(text, glob, budget),
            None => false,
        },
        Op::IsNull => left.is_null(),
        Op::IsPresent => true,
        Op::IsString => left.is_string(),
        Op::IsNumber => left.is_number(),
        Op::IsBoolean => left.is_boolean(),
        Op::IsArray => left.is_array(),
        Op::IsObject => left.is_object(),
    })
}

fn has_element(array: &[Value], item: &Value, budget: &EvaluationBudget) -> Result<bool, BudgetExhausted> {
    for element in array {
        if json::equal(element, item, budget)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Both sides as strings, with reading the shorter one charged.
fn strings<'a>(
    left: &'a Value,
    right: &'a Value,
    budget: &EvaluationBudget,
) -> Result<Option<(&'a str, &'a str)>, BudgetExhausted> {
    let both = left.as_str().zip(right.as_str());
    if let Some((left, right)) = both {
        budget.charge_text(left.len().min(right.len()))?;
    }
    Ok(both)
}

/// Matches without recursion and without a copy: on a mismatch it goes back to the last `*` only, so the cost is at
/// most text × glob. Both may come from data, so both are bounded; a longer text or glob does not match.
fn glob_matches(text: &str, glob: &str, budget: &EvaluationBudget) -> Result<bool, BudgetExhausted> {
    /// Characters compared for the price of a step.
    const CHARS_PER_STEP: u32 = 8;
    if text.len() > GLOB_TEXT_BYTES_MAX || glob.len() > GLOB_BYTES_MAX {
        return Ok(false);
    }
    let (mut text, mut glob) = (text, glob);
    // The glob after the last `*`, and the text that the `*` has not taken yet.
    let mut last_star: Option<(&str, &str)> = None;
    let mut compared = 0_u32;
    while let Some((found, text_after)) = split_char(text) {
        if compared.is_multiple_of(CHARS_PER_STEP) {
            budget.charge_steps(1)?;
        }
        compared = compared.wrapping_add(1);
        match next_token(glob) {
            Some((GlobToken::Any, glob_after)) => {
                last_star = Some((glob_after, text));
                glob = glob_after;
            }
            Some((GlobToken::One, glob_after)) => (text, glob) = (text_after, glob_after),
            Some((GlobToken::Char(expected), glob_after)) if expected == found => {
                (text, glob) = (text_after, glob_after);
            }
            _ => match last_star.and_then(|(after, left)| Some((after, split_char(left)?.1))) {
                Some((after_star, left)) => {
                    last_star = Some((after_star, left));
                    (text, glob) = (left, after_star);
                }
                None => return Ok(false),
            },
        }
    }
    while let Some((GlobToken::Any, glob_after)) = next_token(glob) {
        glob = glob_after;
    }
    Ok(glob.is_empty())
}

#[derive(Clone, Copy)]
enum GlobToken {
    Any,
    One,
    Char(char),
}

fn next_token(glob: &str) -> Option<(GlobToken, &str)> {
    let (first, rest) = split_char(glob)?;
    Some(match first {
        '*' => (GlobToken::Any, rest),
        '?' => (GlobToken::One, rest),
        '\\' => match split_char(rest) {
            Some((escaped, rest)) => (GlobToken::Char(escaped), rest),
            None => (GlobToken::Char('\\'), rest),
        },
        other => (GlobToken::Char(other), rest),
    })
}

fn split_char(text: &str) -> Option<(char, &str)> {
    let mut chars = text.chars();
    Some((chars.next()?, chars.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evaluation::EvaluationLimits;

    #[test]
    fn globs_match_as_shells_do() {
        for (text, glob, expected) in [
            ("device-001", "device-*", true),
            ("device-001", "*-0?1", true),
            ("device-001", "device", false),
            ("", "*", true),
            ("", "?", false),
            ("a*b", "a\\*b", true),
            ("axb", "a\\*b", false),
            ("aaaaaaaaab", "*a*a*b", true),
            ("aaaaaaaaaa", "*a*a*b", false),
            ("äö", "??", true),
        ] {
            assert_eq!(matches(text, glob), Ok(expected), "{text} {glob}");
        }
        assert_eq!(matches(&"a".repeat(70_000), "*"), Ok(false), "longer than the bound");
        assert_eq!(matches("a", &"*".repeat(300)), Ok(false), "longer than the bound");
        let costly = format!("{}b", "*a".repeat(50));
        assert_eq!(matches(&"a".repeat(5_000), &costly), Ok(false), "cost stays bounded");
    }

    fn matches(text: &str, glob: &str) -> Result<bool, BudgetExhausted> {
        glob_matches(text, glob, &EvaluationBudget::new(EvaluationLimits::default()))
    }
}
