//! Reads a JSON object field by field; an error names the field and the rule that it breaks, never the value.
//!
//! Derived deserialisers quote the value, and a value that stands where a reference to a secret belongs may be the
//! secret. Knows nothing about the meaning of the fields.

use serde_json::{Map, Value};

use super::DeclarationError;
use crate::remote::secrets::SecretRef;

/// An object without unknown fields.
pub(super) struct DeclarationFields<'v> {
    /// The path to the object, with a dot at the end.
    prefix: String,
    object: &'v Map<String, Value>,
}

/// The most characters of an unknown field that are shown.
const SHOWN_CHARS_MAX: usize = 64;

impl<'v> DeclarationFields<'v> {
    pub(super) fn of(value: &'v Value, prefix: &str, known: &[&str]) -> Result<Self, DeclarationError> {
        let Some(object) = value.as_object() else {
            let field = if prefix.is_empty() { "the declaration" } else { prefix.trim_end_matches('.') };
            return Err(DeclarationError::Invalid { field: field.to_owned(), expected: "an object" });
        };
        let fields = Self { prefix: prefix.to_owned(), object };
        if let Some(unknown) = object.keys().find(|key| !known.contains(&key.as_str())) {
            let field = fields.qualified_name(&unknown.chars().take(SHOWN_CHARS_MAX).collect::<String>());
            return Err(DeclarationError::Unknown { field });
        }
        Ok(fields)
    }

    pub(super) fn get(&self, field: &str) -> Option<&'v Value> {
        self.object.get(field)
    }

    /// The object in a field.
    pub(super) fn object_field(
        &self,
        field: &str,
        known: &[&str],
    ) -> Result<Option<DeclarationFields<'v>>, DeclarationError> {
        let prefix = format!("{}.", self.qualified_name(field));
        self.get(field).map(|value| Self::of(value, &prefix, known)).transpose()
    }

    pub(super) fn text(
        &self,
        field: &str,
        expected: &'static str,
    ) -> Result<Option<&'v str>, DeclarationError> {
        let text = self.get(field).map(|value| value.as_str().ok_or_else(|| self.invalid(field, expected)));
        text.transpose()
    }

    pub(super) fn required_text(
        &self,
        field: &str,
        expected: &'static str,
    ) -> Result<&'v str, DeclarationError> {
        self.text(field, expected)?.ok_or_else(|| self.missing(field))
    }

    /// A whole number up to a limit; none for any other value.
    pub(super) fn whole_number(&self, field: &str, absent: u32, max: u32) -> Option<u32> {
        let Some(value) = self.get(field) else { return Some(absent) };
        value.as_u64().and_then(|number| u32::try_from(number).ok()).filter(|number| *number <= max)
    }

    pub(super) fn number(&self, field: &str, min: f64, max: f64) -> Result<Option<f64>, DeclarationError> {
        let Some(value) = self.get(field) else { return Ok(None) };
        let number = value.as_f64().filter(|number| (min..=max).contains(number));
        number.map(Some).ok_or_else(|| self.invalid(field, "a number from 0.001 to 1000000"))
    }

    /// True or false; an absent field means false.
    pub(super) fn boolean(&self, field: &str) -> Result<bool, DeclarationError> {
        let Some(value) = self.get(field) else { return Ok(false) };
        value.as_bool().ok_or_else(|| self.invalid(field, "true or false"))
    }

    pub(super) fn secret(&self, field: &str) -> Result<Option<SecretRef>, DeclarationError> {
        let Some(value) = self.get(field) else { return Ok(None) };
        let expected = "{\"secretRef\": \"env:NAME\"} or {\"secretRef\": \"file:/path\"}";
        SecretRef::read(value).map(Some).map_err(|_| self.invalid(field, expected))
    }

    pub(super) fn missing(&self, field: &str) -> DeclarationError {
        DeclarationError::Missing { field: self.qualified_name(field) }
    }

    pub(super) fn invalid(&self, field: &str, expected: &'static str) -> DeclarationError {
        DeclarationError::Invalid { field: self.qualified_name(field), expected }
    }

    fn qualified_name(&self, field: &str) -> String {
        format!("{}{field}", self.prefix)
    }
}
