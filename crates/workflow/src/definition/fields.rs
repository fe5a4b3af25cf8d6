//! Reading a JSON object field by field, collecting findings with their pointers instead of stopping at the first.
//!
//! Knows JSON types, durations and paths; does not know which fields a state has.

use std::cell::RefCell;
use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::finding::{Code, Finding, pointer_token};
use crate::path::{Path, PathError, Reference, Template};
use crate::time::{Duration, TimeError, Timestamp};

/// Where findings are collected while reading.
pub(super) type Findings = RefCell<Vec<Finding>>;

/// One object being read.
pub(super) struct Fields<'a> {
    object: &'a Map<String, Value>,
    pub(super) pointer: String,
    known: RefCell<BTreeSet<&'static str>>,
    findings: &'a Findings,
}

impl<'a> Fields<'a> {
    /// Starts reading; anything but an object is a finding.
    pub(super) fn of(value: &'a Value, pointer: String, findings: &'a Findings) -> Option<Self> {
        match value {
            Value::Object(object) => Some(Self { object, pointer, known: RefCell::default(), findings }),
            other => {
                wrong_type(findings, &pointer, "an object", other);
                None
            }
        }
    }

    /// The pointer of a field.
    pub(super) fn at(&self, name: &str) -> String {
        format!("{}/{}", self.pointer, pointer_token(name))
    }

    pub(super) fn find(&self, code: Code, name: &str, message: impl Into<String>, hint: impl Into<String>) {
        self.find_at(code, self.at(name), message, hint);
    }

    fn find_at(&self, code: Code, pointer: String, message: impl Into<String>, hint: impl Into<String>) {
        self.findings.borrow_mut().push(Finding::new(code, pointer, message, hint));
    }

    pub(super) fn findings(&self) -> &'a Findings {
        self.findings
    }

    /// A field's value, if it is there.
    pub(super) fn value(&self, name: &'static str) -> Option<&'a Value> {
        self.known.borrow_mut().insert(name);
        self.object.get(name)
    }

    /// Fields that say nothing here, but are not to be reported either.
    pub(super) fn pass_over(&self, names: &[&'static str]) {
        self.known.borrow_mut().extend(names);
    }

    /// A field's value; its absence is a finding.
    pub(super) fn required(&self, name: &'static str) -> Option<&'a Value> {
        let value = self.value(name);
        if value.is_none() {
            let finding = Finding::new(
                Code::MissingField,
                self.pointer.clone(),
                format!("the field {name:?} is missing"),
                format!("add {name:?}"),
            );
            self.findings.borrow_mut().push(finding);
        }
        value
    }

    pub(super) fn string(&self, name: &'static str) -> Option<&'a str> {
        self.value(name).and_then(|value| self.as_string(name, value))
    }

    pub(super) fn required_string(&self, name: &'static str) -> Option<&'a str> {
        self.required(name).and_then(|value| self.as_string(name, value))
    }

    /// A string that names something: not empty, not long, nothing invisible in it.
    pub(super) fn required_name(&self, name: &'static str) -> Option<String> {
        let text = self.required_string(name)?;
        match super::read::name_problem(text) {
            None => Some(text.to_owned()),
            Some(problem) => {
                self.find(Code::InvalidValue, name, format!("{text:?} {problem}"), super::read::NAME_HINT);
                None
            }
        }
    }

    fn as_string(&self, name: &str, value: &'a Value) -> Option<&'a str> {
        let text = value.as_str();
        if text.is_none() {
            wrong_type(self.findings, &self.at(name), "a string", value);
        }
        text
    }

    pub(super) fn boolean(&self, name: &'static str) -> Option<bool> {
        let value = self.value(name)?;
        let boolean = value.as_bool();
        if boolean.is_none() {
            wrong_type(self.findings, &self.at(name), "true or false", value);
        }
        boolean
    }

    /// A whole number within bounds.
    pub(super) fn whole(&self, name: &'static str, least: u64, most: u64) -> Option<u64> {
        let value = self.value(name)?;
        let Some(number) = whole_number(value) else {
            wrong_type(self.findings, &self.at(name), "a whole number", value);
            return None;
        };
        if number < least || number > most {
            let bounds = format!("use a number from {least} to {most}");
            self.find(Code::InvalidValue, name, format!("{number} is out of bounds"), bounds);
            return None;
        }
        Some(number)
    }

    pub(super) fn array(&self, name: &'static str) -> Option<&'a Vec<Value>> {
        self.value(name).and_then(|value| self.as_array(name, value))
    }

    pub(super) fn required_array(&self, name: &'static str) -> Option<&'a Vec<Value>> {
        self.required(name).and_then(|value| self.as_array(name, value))
    }

    fn as_array(&self, name: &str, value: &'a Value) -> Option<&'a Vec<Value>> {
        let array = value.as_array();
        if array.is_none() {
            wrong_type(self.findings, &self.at(name), "an array", value);
        }
        array
    }

    /// A list of strings.
    pub(super) fn strings(&self, name: &'static str) -> Vec<String> {
        let mut strings = Vec::new();
        for (position, value) in self.array(name).into_iter().flatten().enumerate() {
            match value.as_str() {
                Some(text) if !text.is_empty() => strings.push(text.to_owned()),
                Some(_) => {
                    self.find(Code::InvalidValue, &format!("{name}/{position}"), "an empty code", "remove it")
                }
                None => {
                    wrong_type(self.findings, &format!("{}/{position}", self.at(name)), "a string", value)
                }
            }
        }
        strings
    }

    pub(super) fn duration(&self, name: &'static str) -> Option<Duration> {
        let text = self.string(name)?;
        Duration::parse(text).map_err(|error| self.invalid_time(name, &error)).ok()
    }

    pub(super) fn invalid_time(&self, name: &str, error: &TimeError) {
        let hint = "durations are ISO-8601 (PT30S, PT48H, P7D), timestamps RFC 3339 (2026-01-31T12:00:00Z)";
        self.find(Code::InvalidTime, name, error.to_string(), hint);
    }

    /// A duration written out, or a path to one.
    pub(super) fn duration_or_path(&self, name: &'static str) -> Option<Result<Duration, Path>> {
        let text = self.required_string(name)?;
        if text.starts_with('$') {
            return self.as_path(name, text).map(Err);
        }
        Duration::parse(text).map(Ok).map_err(|error| self.invalid_time(name, &error)).ok()
    }

    /// A timestamp written out, or a path to one.
    pub(super) fn timestamp_or_path(&self, name: &'static str) -> Option<Result<Timestamp, Path>> {
        let text = self.required_string(name)?;
        if text.starts_with('$') {
            return self.as_path(name, text).map(Err);
        }
        Timestamp::parse(text).map(Ok).map_err(|error| self.invalid_time(name, &error)).ok()
    }

    pub(super) fn required_path(&self, name: &'static str) -> Option<Path> {
        let text = self.required_string(name)?;
        self.as_path(name, text)
    }

    pub(super) fn as_path(&self, name: &str, text: &str) -> Option<Path> {
        Path::parse(text).map_err(|error| self.invalid_path(&self.at(name), &error)).ok()
    }

    fn invalid_path(&self, pointer: &str, error: &PathError) {
        let hint = match error {
            PathError::Syntax { .. } => {
                "a name with other characters is written ['host-name']; a literal that starts with $ is written $$"
            }
            PathError::UnknownRoot { .. } => {
                "start at one of these roots; a literal that starts with $ is written $$"
            }
            PathError::UnknownSystemField { .. } => "use one of these names",
            PathError::TooCostly { .. } => "make the path simpler, or let an activity do the work",
            PathError::OptionalQuery { .. } => "remove the ? at the end",
            PathError::NotAReference { .. } => "write $.state.name",
        };
        let finding = Finding::new(Code::InvalidPath, pointer, error.to_string(), hint);
        self.findings.borrow_mut().push(finding);
    }

    pub(super) fn reference(&self, name: &'static str) -> Option<Reference> {
        let text = self.string(name)?;
        let wrong = |error: PathError| {
            self.find(
                Code::InvalidReference,
                name,
                error.to_string(),
                "write a place such as $.state.result",
            );
        };
        Reference::parse(text).map_err(wrong).ok()
    }

    /// Any JSON, with paths in it.
    pub(super) fn template(&self, name: &'static str) -> Option<Template> {
        let value = self.value(name)?;
        let mut errors = Vec::new();
        let template = Template::compile(value, &mut errors);
        for (below, error) in errors {
            self.invalid_path(&format!("{}{below}", self.at(name)), &error);
        }
        for below in template.secrets_from_data() {
            let message = "which secret is used cannot come from data";
            self.find_at(
                Code::InvalidValue,
                format!("{}{below}", self.at(name)),
                message,
                "write the reference out",
            );
        }
        Some(template)
    }

    /// A string that may be a path.
    pub(super) fn text_template(&self, name: &'static str) -> Option<Template> {
        self.string(name).and_then(|_| self.template(name))
    }

    /// Reports every field nobody asked for.
    pub(super) fn finish(self) {
        let known = self.known.borrow();
        for name in self.object.keys().filter(|name| !known.contains(name.as_str())) {
            let hint = match closest(name, known.iter().copied()) {
                Some(near) => format!("did you mean {near:?}?"),
                None => {
                    format!("remove it; known here: {}", known.iter().copied().collect::<Vec<_>>().join(", "))
                }
            };
            self.find(Code::UnknownField, name, format!("the field {name:?} is not known here"), hint);
        }
    }
}

/// 4 and 4.0 are the same number in JSON.
fn whole_number(value: &Value) -> Option<u64> {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    let integral = |number: &f64| number.fract() == 0.0 && (0.0..=EXACT).contains(number);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "whole, not negative, and exact"
    )]
    value.as_u64().or_else(|| value.as_f64().filter(integral).map(|number| number as u64))
}

pub(super) fn wrong_type(findings: &Findings, pointer: &str, expected: &str, found: &Value) {
    let kind = match found {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    };
    let message = format!("{expected} is expected here, not {kind}");
    findings.borrow_mut().push(Finding::new(Code::WrongType, pointer, message, format!("write {expected}")));
}

/// The known name that is most like a wrong one, if any is.
pub(crate) fn closest<'a>(wrong: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    // Two short names are always near each other; that says nothing.
    let near = |name: &str| match wrong.chars().count().min(name.chars().count()) {
        0..=2 => 0,
        3 => 1,
        4..=8 => 2,
        _ => 3,
    };
    let wrong_lower = wrong.to_lowercase();
    // Lengths too different cannot be near, and comparing them costs most.
    let comparable = known.filter(|name| wrong.len().abs_diff(name.len()) <= 3);
    let scored = comparable.map(|name| (distance(&wrong_lower, &name.to_lowercase()), name));
    scored.filter(|(distance, name)| *distance <= near(name)).min().map(|(_, name)| name)
}

/// Levenshtein, one row at a time.
fn distance(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().take(64).collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (i, a) in left.chars().take(64).enumerate() {
        let mut diagonal = i;
        let mut previous = i + 1;
        for (b, cell) in right.iter().zip(row.iter_mut().skip(1)) {
            let substituted = diagonal + usize::from(a != *b);
            diagonal = *cell;
            *cell = substituted.min(previous + 1).min(*cell + 1);
            previous = *cell;
        }
        if let Some(first) = row.first_mut() {
            *first = i + 1;
        }
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_closest_known_name_is_suggested() {
        assert_eq!(closest("onerror", ["onError", "output"].into_iter()), Some("onError"));
        assert_eq!(closest("nxt", ["next", "timeout"].into_iter()), Some("next"));
        assert_eq!(closest("taks", ["task", "wait"].into_iter()), Some("task"));
        assert_eq!(closest("X", ["A", "B"].into_iter()), None, "short names are near everything");
        assert_eq!(closest("banana", ["next", "timeout"].into_iter()), None);
        assert_eq!(distance("kitten", "sitting"), 3);
    }
}
