//! One named value that a client gives: in the query, in the path, in a header, in a body. What is documented of it is what is checked.

use abide_workflow::{Duration, RunNumber, Timestamp};
use serde_json::{Map, Value, json};

use crate::error::ApiError;

/// A value a client gives.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Field {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) required: bool,
    pub(crate) about: &'static str,
}

/// What a value may be.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    /// Text of so many characters, none of them a control character.
    Text { chars_min: usize, chars_max: usize },
    /// Text of this pattern, which somebody else checks.
    Pattern { pattern: &'static str, chars_max: usize },
    /// One of these words.
    Word(&'static [&'static str]),
    /// A whole number.
    Whole { min: u64, max: u64, default: Option<u64> },
    /// Yes or no.
    Flag,
    /// A moment, RFC 3339.
    Time,
    /// A duration, ISO 8601.
    Span,
    /// A list of values of one kind.
    List { of: &'static Kind, items_min: usize, items_max: usize },
    /// Any JSON.
    Any,
}

/// Control characters are in no text that people read.
const NO_CONTROLS: &str = "^[^\\u0000-\\u001f\\u007f-\\u009f]*$";

impl Field {
    pub(crate) const fn required(name: &'static str, kind: Kind, about: &'static str) -> Self {
        Self { name, kind, required: true, about }
    }

    pub(crate) const fn optional(name: &'static str, kind: Kind, about: &'static str) -> Self {
        Self { name, kind, required: false, about }
    }

    /// The value of a query's parameter, as far as its kind says what it may be.
    pub(crate) fn check(&self, text: &str) -> Result<(), ApiError> {
        self.kind.check(text).map_err(|message| ApiError::invalid(self.name, message))
    }

    /// A checked moment.
    pub(crate) fn time(&self, text: Option<&str>) -> Result<Option<Timestamp>, ApiError> {
        let parsed = text.map(Timestamp::parse).transpose();
        parsed.map_err(|error| ApiError::invalid(self.name, error.to_string()))
    }

    /// A checked number, or its default.
    pub(crate) fn whole(&self, text: Option<&str>) -> Result<u64, ApiError> {
        let default = if let Kind::Whole { default, .. } = self.kind { default } else { None };
        let given = text.map(|text| self.kind.whole(text)).transpose();
        let given = given.map_err(|message| ApiError::invalid(self.name, message))?;
        given.or(default).ok_or_else(|| ApiError::invalid(self.name, "it must be there"))
    }

    /// As [`Self::whole`], to count things with.
    pub(crate) fn count(&self, text: Option<&str>) -> Result<usize, ApiError> {
        let whole = self.whole(text)?;
        usize::try_from(whole).map_err(|_| ApiError::invalid(self.name, "it is too large"))
    }

    /// The number of a run.
    pub(crate) fn run_number(&self, text: &str) -> Result<RunNumber, ApiError> {
        let number = u32::try_from(self.whole(Some(text))?);
        number.map(RunNumber).map_err(|_| ApiError::invalid(self.name, "it is too large"))
    }

    /// The value of a body's field.
    pub(crate) fn check_json(&self, value: &Value) -> Result<(), String> {
        self.kind.check_json(value)
    }

    /// Its schema as a parameter.
    pub(crate) fn schema(&self) -> Value {
        Value::Object(self.kind.schema())
    }

    /// Its schema as a field of a body, where null is as good as absent if it may be absent.
    pub(crate) fn body_schema(&self) -> Value {
        let mut schema = self.kind.schema();
        schema.insert("description".to_owned(), json!(self.about));
        if self.required {
            return Value::Object(schema);
        }
        if let Some(kind) = schema.get_mut("type") {
            *kind = json!([kind.clone(), "null"]);
        }
        if let Some(Value::Array(words)) = schema.get_mut("enum") {
            words.push(Value::Null);
        }
        Value::Object(schema)
    }
}

impl Kind {
    /// Which life of an instance.
    pub(crate) const RUN_NUMBER: Self = Self::Whole { min: 1, max: u32::MAX as u64, default: None };

    fn check(&self, text: &str) -> Result<(), String> {
        match self {
            Self::Text { chars_min, chars_max } => {
                let fits = (*chars_min..=*chars_max).contains(&text.chars().count());
                if fits && !text.chars().any(char::is_control) {
                    return Ok(());
                }
                let count = if chars_min == chars_max {
                    format!("{chars_min}")
                } else {
                    format!("{chars_min} to {chars_max}")
                };
                Err(format!("it must have {count} characters, none of them a control character"))
            }
            Self::Word(words) if words.contains(&text) => Ok(()),
            Self::Word(words) => Err(format!("it must be one of {}", words.join(", "))),
            Self::Whole { .. } => self.whole(text).map(drop),
            Self::Flag if matches!(text, "true" | "false") => Ok(()),
            Self::Flag => Err("it must be true or false".to_owned()),
            Self::Time => Timestamp::parse(text).map(drop).map_err(|error| error.to_string()),
            Self::Span => Duration::parse(text).map(drop).map_err(|error| error.to_string()),
            Self::Pattern { .. } | Self::List { .. } | Self::Any => Ok(()),
        }
    }

    fn check_json(&self, value: &Value) -> Result<(), String> {
        match (self, value) {
            (Self::Any, _) | (Self::Flag, Value::Bool(_)) => Ok(()),
            (Self::Whole { .. }, Value::Number(number)) => self.whole(&number.to_string()).map(drop),
            (Self::List { of, items_min, items_max }, Value::Array(items)) => {
                if !(*items_min..=*items_max).contains(&items.len()) {
                    return Err(format!("it must have {items_min} to {items_max} items"));
                }
                items.iter().try_for_each(|item| of.check_json(item))
            }
            (Self::Whole { .. }, _) => Err("it must be a number".to_owned()),
            (Self::Flag, _) => Err("it must be true or false".to_owned()),
            (Self::List { .. }, _) => Err("it must be an array".to_owned()),
            (_, Value::String(text)) => self.check(text),
            _ => Err("it must be a string".to_owned()),
        }
    }

    fn whole(&self, text: &str) -> Result<u64, String> {
        let (min, max) = if let Self::Whole { min, max, .. } = self { (*min, *max) } else { (0, u64::MAX) };
        // Reading a number takes a sign as well; there is one way to write one.
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let number = text.parse().ok().filter(|number| digits && (min..=max).contains(number));
        number.ok_or_else(|| format!("it must be a number from {min} to {max}"))
    }

    fn schema(&self) -> Map<String, Value> {
        let schema = match self {
            Self::Text { chars_min, chars_max } => json!({
                "type": "string", "minLength": chars_min, "maxLength": chars_max, "pattern": NO_CONTROLS,
            }),
            Self::Pattern { pattern, chars_max } => json!({
                "type": "string", "minLength": 1, "maxLength": chars_max, "pattern": pattern,
            }),
            Self::Word(words) => json!({"type": "string", "enum": words}),
            Self::Whole { min, max, default } => {
                let mut schema = json!({"type": "integer", "minimum": min, "maximum": max});
                if let (Some(default), Value::Object(schema)) = (default, &mut schema) {
                    schema.insert("default".to_owned(), json!(default));
                }
                schema
            }
            Self::Flag => json!({"type": "boolean"}),
            Self::Time => json!({"type": "string", "format": "date-time"}),
            Self::Span => json!({"type": "string", "format": "duration"}),
            Self::List { of, items_min, items_max } => json!({
                "type": "array", "items": of.schema(), "minItems": items_min, "maxItems": items_max,
            }),
            Self::Any => json!({}),
        };
        if let Value::Object(schema) = schema { schema } else { Map::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Field =
        Field::optional("limit", Kind::Whole { min: 1, max: 100, default: Some(50) }, "Items of a page.");

    #[test]
    fn a_number_is_digits_within_its_bounds() {
        assert_eq!(LIMIT.whole(None), Ok(50));
        assert_eq!(LIMIT.whole(Some("100")), Ok(100));
        for wrong in ["", "0", "101", "+5", "-1", "5.0", " 5", "x", "99999999999999999999"] {
            assert!(LIMIT.whole(Some(wrong)).is_err() && LIMIT.check(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn words_times_and_texts_are_checked_as_they_are_documented() {
        let check = |kind: Kind, text: &str| Field::optional("x", kind, "").check(text).is_ok();
        assert!(check(Kind::Word(&["Running"]), "Running") && !check(Kind::Word(&["Running"]), "running"));
        assert!(check(Kind::Time, "2026-01-02T03:04:05Z") && !check(Kind::Time, "2026-01-02"));
        assert!(check(Kind::Span, "PT1S") && !check(Kind::Span, "1s"));
        let text = Kind::Text { chars_min: 1, chars_max: 3 };
        assert!(check(text, "äöü") && !check(text, "") && !check(text, "abcd") && !check(text, "a\n"));
    }

    #[test]
    fn what_may_be_absent_from_a_body_may_be_null() {
        let word = Field::optional("x", Kind::Word(&["a"]), "What.");
        let schema = json!({"type": ["string", "null"], "enum": ["a", null], "description": "What."});
        assert_eq!(word.body_schema(), schema);
        assert_eq!(Field::required("x", Kind::Flag, "What.").body_schema()["type"], "boolean");
    }
}
