//! Evaluation of the conditions of `choice` and `match`. Their JSON form is read in `definition`.
//!
//! Evaluation is total: it never fails. A path without a value and a comparison of types that cannot be compared are
//! false; `eq` and `ne` compare any two JSON values.

use std::cmp::Ordering;

use serde_json::Value;

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
    pub fn holds(&self, roots: &dyn Roots) -> bool {
        match self {
            Self::And(all) => all.iter().all(|condition| condition.holds(roots)),
            Self::Or(any) => any.iter().any(|condition| condition.holds(roots)),
            Self::Not(condition) => !condition.holds(roots),
            Self::Test { path, op, operand } => path.find(roots).is_some_and(|left| match operand {
                Operand::None => compare(&left, *op, &Value::Null),
                Operand::Value(right) => compare(&left, *op, right),
                Operand::Path(right) => right.find(roots).is_some_and(|right| compare(&left, *op, &right)),
            }),
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

fn compare(left: &Value, op: Op, right: &Value) -> bool {
    match op {
        Op::Eq => json::equal(left, right),
        Op::Ne => !json::equal(left, right),
        Op::Gt => order(left, right) == Some(Ordering::Greater),
        Op::Gte => matches!(order(left, right), Some(Ordering::Greater | Ordering::Equal)),
        Op::Lt => order(left, right) == Some(Ordering::Less),
        Op::Lte => matches!(order(left, right), Some(Ordering::Less | Ordering::Equal)),
        Op::In => right.as_array().is_some_and(|array| array.iter().any(|item| json::equal(item, left))),
        Op::Contains => match (left, right) {
            (Value::Array(array), item) => array.iter().any(|element| json::equal(element, item)),
            (Value::String(text), Value::String(part)) => text.contains(part.as_str()),
            _ => false,
        },
        Op::StartsWith => strings(left, right).is_some_and(|(text, part)| text.starts_with(part)),
        Op::EndsWith => strings(left, right).is_some_and(|(text, part)| text.ends_with(part)),
        Op::Matches => strings(left, right).is_some_and(|(text, glob)| glob_matches(text, glob)),
        Op::IsNull => left.is_null(),
        Op::IsPresent => true,
        Op::IsString => left.is_string(),
        Op::IsNumber => left.is_number(),
        Op::IsBoolean => left.is_boolean(),
        Op::IsArray => left.is_array(),
        Op::IsObject => left.is_object(),
    }
}

fn order(left: &Value, right: &Value) -> Option<Ordering> {
    match (left, right) {
        (Value::Number(a), Value::Number(b)) => json::compare_numbers(a, b),
        (Value::String(a), Value::String(b)) => Some(a.cmp(b)),
        _ => None,
    }
}

fn strings<'a>(left: &'a Value, right: &'a Value) -> Option<(&'a str, &'a str)> {
    left.as_str().zip(right.as_str())
}

/// Matches without recursion: on a mismatch it goes back to the last `*` only, so the cost is at most text × glob. Both
/// may come from data, so both are bounded; a longer text or glob does not match.
fn glob_matches(text: &str, glob: &str) -> bool {
    if text.len() > GLOB_TEXT_BYTES_MAX || glob.len() > GLOB_BYTES_MAX {
        return false;
    }
    let text: Vec<char> = text.chars().collect();
    let glob = glob_tokens(glob);
    let mut at = 0;
    let mut token = 0;
    let mut last_star: Option<(usize, usize)> = None;
    while at < text.len() {
        match (glob.get(token), text.get(at)) {
            (Some(Glob::Any), _) => {
                last_star = Some((token, at));
                token += 1;
            }
            (Some(Glob::One), _) => (at, token) = (at + 1, token + 1),
            (Some(Glob::Char(expected)), Some(found)) if expected == found => {
                (at, token) = (at + 1, token + 1)
            }
            _ => match &mut last_star {
                Some((star, matched)) => {
                    *matched += 1;
                    (at, token) = (*matched, *star + 1);
                }
                None => return false,
            },
        }
    }
    glob.iter().skip(token).all(|token| matches!(token, Glob::Any))
}

enum Glob {
    Any,
    One,
    Char(char),
}

fn glob_tokens(glob: &str) -> Vec<Glob> {
    let mut tokens = Vec::new();
    let mut chars = glob.chars();
    while let Some(c) = chars.next() {
        tokens.push(match c {
            '*' => Glob::Any,
            '?' => Glob::One,
            '\\' => Glob::Char(chars.next().unwrap_or('\\')),
            other => Glob::Char(other),
        });
    }
    tokens
}

#[cfg(test)]
mod tests {
    use super::*;

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
            assert_eq!(glob_matches(text, glob), expected, "{text} {glob}");
        }
        assert!(!glob_matches(&"a".repeat(70_000), "*"), "longer than the bound");
        assert!(!glob_matches("a", &"*".repeat(300)), "longer than the bound");
        assert!(!glob_matches(&"a".repeat(5_000), &format!("{}b", "*a".repeat(50))), "cost stays bounded");
    }
}
