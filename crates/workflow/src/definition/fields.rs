//! Reads a JSON object field by field and collects findings with their pointers instead of stopping at the first.
//!
//! It knows JSON types, durations and paths; it does not know which fields a state has.

use std::cell::RefCell;
use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::finding::{Code, Finding, pointer_token};
use crate::path::{Path, PathError, Reference, Template};
use crate::time::{Duration, TimeError, Timestamp};

/// The findings collected while reading.
pub(super) type Findings = RefCell<Vec<Finding>>;

/// Reads the fields of one object and remembers which were read.
pub(super) struct FieldReader<'a> {
    object: &'a Map<String, Value>,
    pub(super) pointer: String,
    known: RefCell<BTreeSet<&'static str>>,
    findings: &'a Findings,
}

impl<'a> FieldReader<'a> {
    /// Starts reading an object; any other value is a finding.
    pub(super) fn of(value: &'a Value, pointer: String, findings: &'a Findings) -> Option<Self> {
        match value {
            Value::Object(object) => Some(Self { object, pointer, known: RefCell::default(), findings }),
            other => {
                report_wrong_type(findings, &pointer, "an object", other);
                None
            }
        }
    }

    /// The JSON pointer of a field.
    pub(super) fn pointer_of(&self, name: &str) -> String {
        format!("{}/{}", self.pointer, pointer_token(name))
    }

    pub(super) fn report(&self, code: Code, name: &str, message: impl Into<String>, hint: impl Into<String>) {
        self.report_at(code, self.pointer_of(name), message, hint);
    }

    fn report_at(&self, code: Code, pointer: String, message: impl Into<String>, hint: impl Into<String>) {
        self.findings.borrow_mut().push(Finding::new(code, pointer, message, hint));
    }

    pub(super) fn findings(&self) -> &'a Findings {
        self.findings
    }

    /// A field's value, if present.
    pub(super) fn value(&self, name: &'static str) -> Option<&'a Value> {
        self.known.borrow_mut().insert(name);
        self.object.get(name)
    }

    /// Marks fields as known without reading them, so that they are not reported.
    pub(super) fn ignore(&self, names: &[&'static str]) {
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

    /// A string that is a name: not empty, not too long, without invisible characters.
    pub(super) fn required_name(&self, name: &'static str) -> Option<String> {
        let text = self.required_string(name)?;
        match super::read::name_problem(text) {
            None => Some(text.to_owned()),
            Some(problem) => {
                self.report(Code::InvalidValue, name, format!("{text:?} {problem}"), super::read::NAME_HINT);
                None
            }
        }
    }

    fn as_string(&self, name: &str, value: &'a Value) -> Option<&'a str> {
        let text = value.as_str();
        if text.is_none() {
            report_wrong_type(self.findings, &self.pointer_of(name), "a string", value);
        }
        text
    }

    pub(super) fn boolean(&self, name: &'static str) -> Option<bool> {
        let value = self.value(name)?;
        let boolean = value.as_bool();
        if boolean.is_none() {
            report_wrong_type(self.findings, &self.pointer_of(name), "true or false", value);
        }
        boolean
    }

    /// A whole number within bounds.
    pub(super) fn bounded_integer(&self, name: &'static str, least: u64, most: u64) -> Option<u64> {
        let value = self.value(name)?;
        let Some(number) = parse_whole_number(value) else {
            report_wrong_type(self.findings, &self.pointer_of(name), "a whole number", value);
            return None;
        };
        if number < least || number > most {
            let bounds = format!("use a number from {least} to {most}");
            self.report(Code::InvalidValue, name, format!("{number} is out of bounds"), bounds);
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
            report_wrong_type(self.findings, &self.pointer_of(name), "an array", value);
        }
        array
    }

    /// A list of strings.
    pub(super) fn strings(&self, name: &'static str) -> Vec<String> {
        let mut strings = Vec::new();
        for (position, value) in self.array(name).into_iter().flatten().enumerate() {
            match value.as_str() {
                Some(text) if !text.is_empty() => strings.push(text.to_owned()),
                Some(_) => self.report(
                    Code::InvalidValue,
                    &format!("{name}/{position}"),
                    "the error code is empty",
                    "remove it",
                ),
                None => report_wrong_type(
                    self.findings,
                    &format!("{}/{position}", self.pointer_of(name)),
                    "a string",
                    value,
                ),
            }
        }
        strings
    }

    pub(super) fn duration(&self, name: &'static str) -> Option<Duration> {
        let text = self.string(name)?;
        Duration::parse(text).map_err(|error| self.report_invalid_time(name, &error)).ok()
    }

    pub(super) fn report_invalid_time(&self, name: &str, error: &TimeError) {
        let hint = "durations are ISO-8601 (PT30S, PT48H, P7D), timestamps RFC 3339 (2026-01-31T12:00:00Z)";
        self.report(Code::InvalidTime, name, error.to_string(), hint);
    }

    /// A duration written out, or a path to one.
    pub(super) fn duration_or_path(&self, name: &'static str) -> Option<Result<Duration, Path>> {
        let text = self.required_string(name)?;
        if text.starts_with('$') {
            return self.as_path(name, text).map(Err);
        }
        Duration::parse(text).map(Ok).map_err(|error| self.report_invalid_time(name, &error)).ok()
    }

    /// A timestamp written out, or a path to one.
    pub(super) fn timestamp_or_path(&self, name: &'static str) -> Option<Result<Timestamp, Path>> {
        let text = self.required_string(name)?;
        if text.starts_with('$') {
            return self.as_path(name, text).map(Err);
        }
        Timestamp::parse(text).map(Ok).map_err(|error| self.report_invalid_time(name, &error)).ok()
    }

    pub(super) fn required_path(&self, name: &'static str) -> Option<Path> {
        let text = self.required_string(name)?;
        self.as_path(name, text)
    }

    pub(super) fn as_path(&self, name: &str, text: &str) -> Option<Path> {
        Path::parse(text).map_err(|error| self.report_invalid_path(&self.pointer_of(name), &error)).ok()
    }

    fn report_invalid_path(&self, pointer: &str, error: &PathError) {
        let hint = match error {
            PathError::Syntax { .. } => {
                "a name with other characters is written ['host-name']; a literal that starts with $ is written $$"
            }
            PathError::UnknownRoot { .. } => {
                "start with one of these roots; a literal that starts with $ is written $$"
            }
            PathError::UnknownSystemField { .. } => "use one of these names",
            PathError::TooCostly { .. } => "simplify the path, or let an activity do the work",
            PathError::OptionalQuery { .. } => "remove the ? at the end",
            PathError::NotAReference { .. } => "write $.state.name",
        };
        let finding = Finding::new(Code::InvalidPath, pointer, error.to_string(), hint);
        self.findings.borrow_mut().push(finding);
    }

    pub(super) fn reference(&self, name: &'static str) -> Option<Reference> {
        let text = self.string(name)?;
        let report = |error: PathError| {
            self.report(
                Code::InvalidReference,
                name,
                error.to_string(),
                "write a place such as $.state.result",
            );
        };
        Reference::parse(text).map_err(report).ok()
    }

    /// Any JSON that may contain paths.
    pub(super) fn template(&self, name: &'static str) -> Option<Template> {
        let value = self.value(name)?;
        let mut errors = Vec::new();
        let template = Template::compile(value, &mut errors);
        for (below, error) in errors {
            self.report_invalid_path(&format!("{}{below}", self.pointer_of(name)), &error);
        }
        for below in template.dynamic_secret_pointers() {
            let message = "a secret reference cannot be computed from data";
            self.report_at(
                Code::InvalidValue,
                format!("{}{below}", self.pointer_of(name)),
                message,
                "write the reference as a literal string",
            );
        }
        Some(template)
    }

    /// A string that may be a path.
    pub(super) fn text_template(&self, name: &'static str) -> Option<Template> {
        self.string(name).and_then(|_| self.template(name))
    }

    /// Reports every field that was not read.
    pub(super) fn finish(self) {
        let known = self.known.borrow();
        for name in self.object.keys().filter(|name| !known.contains(name.as_str())) {
            let hint = match closest_name(name, known.iter().copied()) {
                Some(near) => format!("did you mean {near:?}?"),
                None => {
                    format!(
                        "remove it; known fields are {}",
                        known.iter().copied().collect::<Vec<_>>().join(", ")
                    )
                }
            };
            self.report(Code::UnknownField, name, format!("unknown field {name:?}"), hint);
        }
    }
}

/// Reads 4.0 as well as 4: they are the same number in JSON.
fn parse_whole_number(value: &Value) -> Option<u64> {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    let integral = |number: &f64| number.fract() == 0.0 && (0.0..=EXACT).contains(number);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "whole, not negative, and exact"
    )]
    value.as_u64().or_else(|| value.as_f64().filter(integral).map(|number| number as u64))
}

pub(super) fn report_wrong_type(findings: &Findings, pointer: &str, expected: &str, found: &Value) {
    let kind = match found {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    };
    let message = format!("expected {expected}, not {kind}");
    findings.borrow_mut().push(Finding::new(Code::WrongType, pointer, message, format!("write {expected}")));
}

/// The known name that is most similar to a wrong one, if any is similar.
pub(crate) fn closest_name<'a>(wrong: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    // Two short names are always within a small edit distance, so their similarity means nothing.
    let near = |name: &str| match wrong.chars().count().min(name.chars().count()) {
        0..=2 => 0,
        3 => 1,
        4..=8 => 2,
        _ => 3,
    };
    let wrong_lower = wrong.to_lowercase();
    // Names of very different lengths cannot be similar, and comparing them costs most.
    let comparable = known.filter(|name| wrong.len().abs_diff(name.len()) <= 3);
    let scored = comparable.map(|name| (edit_distance(&wrong_lower, &name.to_lowercase()), name));
    scored.filter(|(distance, name)| *distance <= near(name)).min().map(|(_, name)| name)
}

/// Levenshtein distance, computed one row at a time.
fn edit_distance(left: &str, right: &str) -> usize {
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
        assert_eq!(closest_name("onerror", ["onError", "output"].into_iter()), Some("onError"));
        assert_eq!(closest_name("nxt", ["next", "timeout"].into_iter()), Some("next"));
        assert_eq!(closest_name("taks", ["task", "wait"].into_iter()), Some("task"));
        assert_eq!(closest_name("X", ["A", "B"].into_iter()), None, "short names are similar to everything");
        assert_eq!(closest_name("banana", ["next", "timeout"].into_iter()), None);
        assert_eq!(edit_distance("kitten", "sitting"), 3);
    }
}
