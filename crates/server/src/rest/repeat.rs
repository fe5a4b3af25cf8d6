//! `Idempotency-Key`: how a request that comes again is recognised, and which instance a start without an id of its own means.
//!
//! A key is looked for where the instance lives, so an instance id that the client chose is part of what the key names: the same key with
//! another id is another request, wherever the two lie. So is what is asked for: a key of an event says nothing of a termination.

use abide_runtime::{Repeat, Request};
use abide_workflow::{InstanceId, PlanHash};
use axum::http::HeaderMap;
use serde_json::Value;

use crate::error::ApiError;
use crate::openapi::{Field, Kind};

const HEADER: &str = "idempotency-key";
const KEY_CHARS_MAX: usize = 255;
/// As it is documented.
pub(crate) const KEY: Field = Field::optional(
    "Idempotency-Key",
    Kind::Pattern { pattern: "^[!-~]*$", chars_max: KEY_CHARS_MAX },
    "Makes the request recognisable when it comes again: it is done once, and answered as before.",
);
/// Hexadecimal digits of the digest in a derived id.
const ID_DIGITS: usize = 32;

/// A client's key and the digest of what it came with.
#[derive(Debug)]
pub(crate) struct RepeatKey<'a> {
    key: &'a str,
    payload: [u8; 32],
}

impl<'a> RepeatKey<'a> {
    /// The key of a request, if it has one. The body is spelled in one way, so that spaces and the order of fields do not matter.
    pub(crate) fn of(headers: &'a HeaderMap, body: Option<&Value>) -> Result<Option<Self>, ApiError> {
        let invalid = |message: &str| ApiError::invalid("Idempotency-Key", message);
        let mut given = headers.get_all(HEADER).iter();
        let Some(key) = given.next() else { return Ok(None) };
        if given.next().is_some() {
            return Err(invalid("the header is there twice"));
        }
        let key = key.to_str().ok().filter(|key| {
            (1..=KEY_CHARS_MAX).contains(&key.len()) && key.bytes().all(|byte| byte.is_ascii_graphic())
        });
        let key = key.ok_or_else(|| invalid("it must have 1 to 255 visible ASCII characters"))?;
        // Object members are kept sorted by name.
        let body = serde_json::to_vec(&body).map_err(|error| ApiError::internal(&error))?;
        Ok(Some(Self { key, payload: Repeat::digest(&[&body]) }))
    }

    /// The instance that a request without an instance id means.
    pub(crate) fn instance_id(&self, workflow: &str) -> Result<InstanceId, ApiError> {
        let mut id = PlanHash(Repeat::digest(&[workflow.as_bytes(), self.key.as_bytes()])).to_string();
        id.truncate(ID_DIGITS);
        InstanceId::new(format!("k-{id}")).map_err(|error| ApiError::internal(&error))
    }

    /// What the runtime recognises a start by.
    pub(crate) fn of_start(&self, workflow: &str, id: &InstanceId, names_instance: bool) -> Repeat {
        let key = Repeat::digest(&[workflow.as_bytes(), id.as_str().as_bytes(), self.key.as_bytes()]);
        Repeat { names_instance, ..Repeat::new(key, self.payload) }
    }

    /// What the runtime recognises anything else by, that is asked of an instance.
    pub(crate) fn of_order(&self, order: &str, id: &InstanceId) -> Repeat {
        let key = Repeat::digest(&[b"order", order.as_bytes(), id.as_str().as_bytes(), self.key.as_bytes()]);
        Repeat::new(key, self.payload)
    }
}

impl RepeatKey<'_> {
    /// What the runtime recognises an operation on an entity by.
    pub(super) fn of_operation(&self, operation: &str, entity: &str) -> Repeat {
        let parts = [b"operation", operation.as_bytes(), entity.as_bytes(), self.key.as_bytes()];
        Repeat::new(Repeat::digest(&parts), self.payload)
    }
}

/// A request, done once if it has a key.
pub(super) fn once(repeat: Option<Repeat>, request: Request) -> Request {
    match repeat {
        Some(repeat) => Request::Once(repeat, Box::new(request)),
        None => request,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;
    use serde_json::json;

    fn headers(key: &[u8]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(HEADER, HeaderValue::from_bytes(key).unwrap());
        headers
    }

    #[test]
    fn the_same_body_in_another_spelling_is_the_same_request() {
        let headers = headers(b"k");
        let of = |text: &str| {
            let body = abide_workflow::json::parse(text).unwrap();
            RepeatKey::of(&headers, Some(&body)).unwrap().unwrap().payload
        };
        assert_eq!(of(r#"{"b": [1, 2], "a": 1}"#), of(r#"{"a":1,"b":[1,2]}"#));
        assert_ne!(of(r#"{"a": 1}"#), of(r#"{"a": 2}"#));
    }

    #[test]
    fn a_key_names_an_instance_per_workflow() {
        let (one, other) = (headers(b"one"), headers(b"other"));
        let body = json!({});
        let id = |headers: &HeaderMap, workflow: &str| {
            let key = RepeatKey::of(headers, Some(&body)).unwrap().unwrap();
            key.instance_id(workflow).unwrap().as_str().to_owned()
        };
        assert_eq!(id(&one, "w"), id(&one, "w"));
        assert!(id(&one, "w") != id(&other, "w") && id(&one, "w") != id(&one, "v"));
        assert!(id(&one, "w").starts_with("k-") && id(&one, "w").len() == 34);
    }

    #[test]
    fn a_key_that_is_empty_long_or_invisible_is_refused() {
        for key in [&b""[..], b"a b", b"\xc3\xa4", &[b'a'; 256]] {
            assert!(RepeatKey::of(&headers(key), None).is_err(), "{key:?}");
        }
        let mut twice = headers(b"a");
        twice.append(HEADER, HeaderValue::from_static("b"));
        assert!(RepeatKey::of(&twice, None).is_err());
        assert!(RepeatKey::of(&HeaderMap::new(), None).unwrap().is_none());
    }
}
