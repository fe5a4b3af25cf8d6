//! A JSON object from a client, taken apart field by field; what is left over is refused.

use serde_json::{Map, Value};

use crate::error::ApiError;
use crate::openapi::Field;

/// The fields of a body that have not been taken yet.
#[derive(Debug)]
pub(crate) struct Fields(Map<String, Value>);

impl Fields {
    /// The fields of an object. No body is an object without fields.
    pub(crate) fn of(body: Option<Value>) -> Result<Self, ApiError> {
        match body {
            None => Ok(Self(Map::new())),
            Some(Value::Object(fields)) => Ok(Self(fields)),
            Some(_) => Err(ApiError::invalid("", "the body must be a JSON object")),
        }
    }

    /// A field as it is; none if it is not there.
    pub(crate) fn value(&mut self, name: &str) -> Option<Value> {
        self.0.remove(name)
    }

    /// A field, checked as far as it is documented; null means that it is not there.
    pub(crate) fn checked(&mut self, field: &Field) -> Result<Option<Value>, ApiError> {
        let value = self.0.remove(field.name).filter(|value| !value.is_null());
        let Some(value) = value else {
            let absent = || ApiError::invalid(pointer(field.name), "it must be there");
            return if field.required { Err(absent()) } else { Ok(None) };
        };
        field.check_json(&value).map_err(|message| ApiError::invalid(pointer(field.name), message))?;
        Ok(Some(value))
    }

    /// As [`Self::checked`], of a field whose values are text.
    pub(crate) fn checked_text(&mut self, field: &Field) -> Result<Option<String>, ApiError> {
        let value = self.checked(field)?;
        Ok(value.and_then(|value| if let Value::String(text) = value { Some(text) } else { None }))
    }

    /// A field that is text if it is there; null means that it is not.
    pub(crate) fn text(&mut self, name: &str) -> Result<Option<String>, ApiError> {
        match self.0.remove(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(ApiError::invalid(pointer(name), "it must be a string")),
        }
    }

    /// Nothing may be left: a misspelled field would be ignored without a word.
    pub(crate) fn end(self) -> Result<(), ApiError> {
        match self.0.keys().next() {
            None => Ok(()),
            Some(unknown) => Err(ApiError::invalid(pointer(unknown), "there is no such field")),
        }
    }
}

/// A field's place in the body.
fn pointer(name: &str) -> String {
    let name: String = name.chars().take(128).collect();
    format!("/{}", abide_workflow::finding::pointer_token(&name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::openapi::Kind;
    use serde_json::json;

    #[test]
    fn what_is_of_another_type_or_left_over_is_refused_with_its_place() {
        let mut fields = Fields::of(Some(json!({"a": 1, "b": null, "c/d": 2, "e": "\n"}))).unwrap();
        assert_eq!(fields.text("a").unwrap_err().to_json_text(), "/a");
        assert_eq!(fields.text("b").unwrap(), None);
        let text = Field::optional("e", Kind::Text { chars_min: 1, chars_max: 5 }, "");
        assert_eq!(fields.checked_text(&text).unwrap_err().to_json_text(), "/e");
        assert_eq!(fields.end().unwrap_err().to_json_text(), "/c~1d");
        assert!(Fields::of(Some(json!([]))).is_err() && Fields::of(None).unwrap().end().is_ok());
    }

    impl ApiError {
        fn to_json_text(&self) -> String {
            serde_json::to_value(self.to_json()).unwrap()["target"].as_str().unwrap().to_owned()
        }
    }
}
