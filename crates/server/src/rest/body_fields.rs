//! Takes the fields of a JSON request body one by one, with checks, and rejects the fields that are left over.

use serde_json::{Map, Value};

use crate::error::ApiError;
use crate::openapi::Field;

/// The fields of a body that have not been taken yet.
#[derive(Debug)]
pub(crate) struct BodyFields(Map<String, Value>);

impl BodyFields {
    /// The fields of an object. No body is an object without fields.
    pub(crate) fn from_body(body: Option<Value>) -> Result<Self, ApiError> {
        match body {
            None => Ok(Self(Map::new())),
            Some(Value::Object(fields)) => Ok(Self(fields)),
            Some(_) => Err(ApiError::invalid("", "the body must be a JSON object")),
        }
    }

    /// A field without any check; `None` if it is absent, but not if it is null.
    pub(crate) fn take_value(&mut self, name: &str) -> Option<Value> {
        self.0.remove(name)
    }

    /// A field, checked against its OpenAPI declaration. Null means absent, also in a required field.
    pub(crate) fn take_checked(&mut self, field: &Field) -> Result<Option<Value>, ApiError> {
        let value = self.0.remove(field.name).filter(|value| !value.is_null());
        let Some(value) = value else {
            let missing = || ApiError::invalid(pointer(field.name), "required");
            return if field.required { Err(missing()) } else { Ok(None) };
        };
        field.check_json(&value).map_err(|message| ApiError::invalid(pointer(field.name), message))?;
        Ok(Some(value))
    }

    /// As [`Self::take_checked`], for a text field.
    pub(crate) fn take_checked_text(&mut self, field: &Field) -> Result<Option<String>, ApiError> {
        let value = self.take_checked(field)?;
        Ok(value.and_then(|value| if let Value::String(text) = value { Some(text) } else { None }))
    }

    /// An optional text field whose text the caller checks; null means absent.
    pub(crate) fn take_text(&mut self, name: &str) -> Result<Option<String>, ApiError> {
        match self.0.remove(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(ApiError::invalid(pointer(name), "must be a string")),
        }
    }

    /// Fails if a field is left: a misspelled field would otherwise be ignored silently.
    pub(crate) fn reject_unknown(self) -> Result<(), ApiError> {
        match self.0.keys().next() {
            None => Ok(()),
            Some(unknown) => Err(ApiError::invalid(pointer(unknown), "unknown field")),
        }
    }
}

/// The JSON pointer to a field of the body. The client chose the name, so it is cut to a length fit for a message.
fn pointer(name: &str) -> String {
    let name: String = name.chars().take(128).collect();
    format!("/{}", abide_workflow::finding::pointer_token(&name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::openapi::FieldKind;
    use serde_json::json;

    #[test]
    fn wrong_types_and_unknown_fields_are_rejected_with_a_pointer() {
        let mut fields =
            BodyFields::from_body(Some(json!({"a": 1, "b": null, "c/d": 2, "e": "\n"}))).unwrap();
        assert_eq!(fields.take_text("a").unwrap_err().to_json_text(), "/a");
        assert_eq!(fields.take_text("b").unwrap(), None);
        let text = Field::optional("e", FieldKind::Text { chars_min: 1, chars_max: 5 }, "");
        assert_eq!(fields.take_checked_text(&text).unwrap_err().to_json_text(), "/e");
        assert_eq!(fields.reject_unknown().unwrap_err().to_json_text(), "/c~1d");
        assert!(
            BodyFields::from_body(Some(json!([]))).is_err()
                && BodyFields::from_body(None).unwrap().reject_unknown().is_ok()
        );
    }

    impl ApiError {
        fn to_json_text(&self) -> String {
            serde_json::to_value(self.to_json()).unwrap()["target"].as_str().unwrap().to_owned()
        }
    }
}
