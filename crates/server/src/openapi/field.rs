//! One named value that a client sends in the query, path, header or body. The same definition documents it and, except
//! for headers and patterns, checks it.

use abide_workflow::{Duration, RunNumber, Timestamp};
use serde_json::{Map, Value, json};

use crate::error::ApiError;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Field {
    pub(crate) name: &'static str,
    pub(crate) kind: FieldKind,
    pub(crate) required: bool,
    pub(crate) about: &'static str,
}

/// The type of a field, with its limits.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FieldKind {
    /// Text without control characters.
    Text {
        chars_min: usize,
        chars_max: usize,
    },
    /// Text of this pattern. The handler checks it.
    Pattern {
        pattern: &'static str,
        chars_max: usize,
    },
    OneOf(&'static [&'static str]),
    Integer {
        min: u64,
        max: u64,
        default: Option<u64>,
    },
    Bool,
    /// RFC 3339.
    Timestamp,
    /// ISO 8601.
    Duration,
    List {
        of: &'static FieldKind,
        items_min: usize,
        items_max: usize,
    },
    Any,
}

/// No control characters.
const NO_CONTROLS: &str = "^[^\\u0000-\\u001f\\u007f-\\u009f]*$";

impl Field {
    pub(crate) const fn required(name: &'static str, kind: FieldKind, about: &'static str) -> Self {
        Self { name, kind, required: true, about }
    }

    pub(crate) const fn optional(name: &'static str, kind: FieldKind, about: &'static str) -> Self {
        Self { name, kind, required: false, about }
    }

    /// Checks a query or path parameter, as far as its kind allows it.
    pub(crate) fn check(&self, text: &str) -> Result<(), ApiError> {
        self.kind.check(text).map_err(|message| ApiError::invalid(self.name, message))
    }

    pub(crate) fn parse_time(&self, text: Option<&str>) -> Result<Option<Timestamp>, ApiError> {
        let parsed = text.map(Timestamp::parse).transpose();
        parsed.map_err(|error| ApiError::invalid(self.name, error.to_string()))
    }

    /// The number, or the field's default.
    pub(crate) fn parse_integer(&self, text: Option<&str>) -> Result<u64, ApiError> {
        let default = if let FieldKind::Integer { default, .. } = self.kind { default } else { None };
        let given = text.map(|text| self.kind.parse_integer(text)).transpose();
        let given = given.map_err(|message| ApiError::invalid(self.name, message))?;
        given.or(default).ok_or_else(|| ApiError::invalid(self.name, "required"))
    }

    /// As [`Self::parse_integer`], for a number of things.
    pub(crate) fn parse_count(&self, text: Option<&str>) -> Result<usize, ApiError> {
        let number = self.parse_integer(text)?;
        usize::try_from(number).map_err(|_| ApiError::invalid(self.name, "too large"))
    }

    pub(crate) fn parse_run_number(&self, text: &str) -> Result<RunNumber, ApiError> {
        let number = u32::try_from(self.parse_integer(Some(text))?);
        number.map(RunNumber).map_err(|_| ApiError::invalid(self.name, "too large"))
    }

    /// Checks the value of a body field. The caller adds the pointer to the message.
    pub(crate) fn check_json(&self, value: &Value) -> Result<(), String> {
        self.kind.check_json(value)
    }

    /// The schema as a parameter.
    pub(crate) fn schema(&self) -> Value {
        Value::Object(self.kind.schema())
    }

    /// The schema as a body field, where null means absent if the field is optional.
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

impl FieldKind {
    pub(crate) const RUN_NUMBER: Self = Self::Integer { min: 1, max: u32::MAX as u64, default: None };

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
                Err(format!("must have {count} characters, none of them a control character"))
            }
            Self::OneOf(words) if words.contains(&text) => Ok(()),
            Self::OneOf(words) => Err(format!("must be one of {}", words.join(", "))),
            Self::Integer { .. } => self.parse_integer(text).map(drop),
            Self::Bool if matches!(text, "true" | "false") => Ok(()),
            Self::Bool => Err("must be true or false".to_owned()),
            Self::Timestamp => Timestamp::parse(text).map(drop).map_err(|error| error.to_string()),
            Self::Duration => Duration::parse(text).map(drop).map_err(|error| error.to_string()),
            Self::Pattern { .. } | Self::List { .. } | Self::Any => Ok(()),
        }
    }

    fn check_json(&self, value: &Value) -> Result<(), String> {
        match (self, value) {
            (Self::Any, _) | (Self::Bool, Value::Bool(_)) => Ok(()),
            (Self::Integer { .. }, Value::Number(number)) => {
                self.parse_integer(&number.to_string()).map(drop)
            }
            (Self::List { of, items_min, items_max }, Value::Array(items)) => {
                if !(*items_min..=*items_max).contains(&items.len()) {
                    return Err(format!("must have {items_min} to {items_max} items"));
                }
                items.iter().try_for_each(|item| of.check_json(item))
            }
            (Self::Integer { .. }, _) => Err("must be a number".to_owned()),
            (Self::Bool, _) => Err("must be true or false".to_owned()),
            (Self::List { .. }, _) => Err("must be an array".to_owned()),
            (_, Value::String(text)) => self.check(text),
            _ => Err("must be a string".to_owned()),
        }
    }

    fn parse_integer(&self, text: &str) -> Result<u64, String> {
        let (min, max) = if let Self::Integer { min, max, .. } = self { (*min, *max) } else { (0, u64::MAX) };
        // `parse` accepts a sign too, but there is only one way to write a number.
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let number = text.parse().ok().filter(|number| digits && (min..=max).contains(number));
        number.ok_or_else(|| format!("must be a number from {min} to {max}"))
    }

    fn schema(&self) -> Map<String, Value> {
        let schema = match self {
            Self::Text { chars_min, chars_max } => json!({
                "type": "string", "minLength": chars_min, "maxLength": chars_max, "pattern": NO_CONTROLS,
            }),
            Self::Pattern { pattern, chars_max } => json!({
                "type": "string", "minLength": 1, "maxLength": chars_max, "pattern": pattern,
            }),
            Self::OneOf(words) => json!({"type": "string", "enum": words}),
            Self::Integer { min, max, default } => {
                let mut schema = json!({"type": "integer", "minimum": min, "maximum": max});
                if let (Some(default), Value::Object(schema)) = (default, &mut schema) {
                    schema.insert("default".to_owned(), json!(default));
                }
                schema
            }
            Self::Bool => json!({"type": "boolean"}),
            Self::Timestamp => json!({"type": "string", "format": "date-time"}),
            Self::Duration => json!({"type": "string", "format": "duration"}),
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

    const LIMIT: Field = Field::optional(
        "limit",
        FieldKind::Integer { min: 1, max: 100, default: Some(50) },
        "Items of a page.",
    );

    #[test]
    fn a_number_is_digits_within_its_bounds() {
        assert_eq!(LIMIT.parse_integer(None), Ok(50));
        assert_eq!(LIMIT.parse_integer(Some("100")), Ok(100));
        for wrong in ["", "0", "101", "+5", "-1", "5.0", " 5", "x", "99999999999999999999"] {
            assert!(LIMIT.parse_integer(Some(wrong)).is_err() && LIMIT.check(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn words_timestamps_and_texts_are_checked_as_documented() {
        let check = |kind: FieldKind, text: &str| Field::optional("x", kind, "").check(text).is_ok();
        assert!(
            check(FieldKind::OneOf(&["Running"]), "Running")
                && !check(FieldKind::OneOf(&["Running"]), "running")
        );
        assert!(
            check(FieldKind::Timestamp, "2026-01-02T03:04:05Z") && !check(FieldKind::Timestamp, "2026-01-02")
        );
        assert!(check(FieldKind::Duration, "PT1S") && !check(FieldKind::Duration, "1s"));
        let text = FieldKind::Text { chars_min: 1, chars_max: 3 };
        assert!(check(text, "äöü") && !check(text, "") && !check(text, "abcd") && !check(text, "a\n"));
    }

    #[test]
    fn an_optional_body_field_may_be_null() {
        let word = Field::optional("x", FieldKind::OneOf(&["a"]), "About x.");
        let schema = json!({"type": ["string", "null"], "enum": ["a", null], "description": "About x."});
        assert_eq!(word.body_schema(), schema);
        assert_eq!(Field::required("x", FieldKind::Bool, "About x.").body_schema()["type"], "boolean");
    }
}
