//! Takes a JSON object apart by its fields, and tells a mistake by the field it is in and the rule it breaks, never by what was written.
//!
//! Not what derived readers do: they quote what they found, and what is found where a reference to a secret belongs may be the secret.

use serde_json::{Map, Value};

use super::DeclarationError;
use crate::remote::secrets::SecretRef;

/// An object of which all fields are known.
pub(super) struct Fields<'v> {
    /// What leads to it, with a dot at the end.
    prefix: String,
    object: &'v Map<String, Value>,
}

/// Characters of a field that nobody knows.
const SHOWN_MAX: usize = 64;

impl<'v> Fields<'v> {
    pub(super) fn of(value: &'v Value, prefix: &str, known: &[&str]) -> Result<Self, DeclarationError> {
        let Some(object) = value.as_object() else {
            let field = if prefix.is_empty() { "the declaration" } else { prefix.trim_end_matches('.') };
            return Err(DeclarationError::Wrong { field: field.to_owned(), expected: "an object" });
        };
        let fields = Self { prefix: prefix.to_owned(), object };
        if let Some(unknown) = object.keys().find(|key| !known.contains(&key.as_str())) {
            let field = fields.named(&unknown.chars().take(SHOWN_MAX).collect::<String>());
            return Err(DeclarationError::Unknown { field });
        }
        Ok(fields)
    }

    pub(super) fn get(&self, field: &str) -> Option<&'v Value> {
        self.object.get(field)
    }

    /// An object in a field.
    pub(super) fn below(&self, field: &str, known: &[&str]) -> Result<Option<Fields<'v>>, DeclarationError> {
        let prefix = format!("{}.", self.named(field));
        self.get(field).map(|value| Self::of(value, &prefix, known)).transpose()
    }

    pub(super) fn text(
        &self,
        field: &str,
        expected: &'static str,
    ) -> Result<Option<&'v str>, DeclarationError> {
        let text = self.get(field).map(|value| value.as_str().ok_or_else(|| self.wrong(field, expected)));
        text.transpose()
    }

    pub(super) fn needed_text(
        &self,
        field: &str,
        expected: &'static str,
    ) -> Result<&'v str, DeclarationError> {
        self.text(field, expected)?.ok_or_else(|| self.missing(field))
    }

    /// A whole number up to a limit; none if it is something else.
    pub(super) fn whole(&self, field: &str, absent: u32, max: u32) -> Option<u32> {
        let Some(value) = self.get(field) else { return Some(absent) };
        value.as_u64().and_then(|number| u32::try_from(number).ok()).filter(|number| *number <= max)
    }

    pub(super) fn number(&self, field: &str, min: f64, max: f64) -> Result<Option<f64>, DeclarationError> {
        let Some(value) = self.get(field) else { return Ok(None) };
        let number = value.as_f64().filter(|number| (min..=max).contains(number));
        number.map(Some).ok_or_else(|| self.wrong(field, "a number from 0.001 to 1000000"))
    }

    /// True, or false, which is also what nothing means.
    pub(super) fn truth(&self, field: &str) -> Result<bool, DeclarationError> {
        let Some(value) = self.get(field) else { return Ok(false) };
        value.as_bool().ok_or_else(|| self.wrong(field, "true or false"))
    }

    pub(super) fn secret(&self, field: &str) -> Result<Option<SecretRef>, DeclarationError> {
        let Some(value) = self.get(field) else { return Ok(None) };
        let expected = "{\"secretRef\": \"env:NAME\"} or {\"secretRef\": \"file:/path\"}";
        SecretRef::read(value).map(Some).map_err(|_| self.wrong(field, expected))
    }

    pub(super) fn missing(&self, field: &str) -> DeclarationError {
        DeclarationError::Missing { field: self.named(field) }
    }

    pub(super) fn wrong(&self, field: &str, expected: &'static str) -> DeclarationError {
        DeclarationError::Wrong { field: self.named(field), expected }
    }

    fn named(&self, field: &str) -> String {
        format!("{}{field}", self.prefix)
    }
}
