//! The `Idempotency-Key` header: derives the key of the idempotency record, and the instance id of a start without one.
//!
//! The record is kept in the shard of the instance. So an instance id chosen by the client is part of the key: the same
//! header with another instance id is another request, on whichever shards the two are. The kind of request is part of
//! the key too: a key used for an event does not match a termination. Knows nothing about stored replies.

use abide_ids::{Digest, KeyDigest};
use abide_runtime::{RequestIdempotency, ShardRequest};
use abide_workflow::InstanceId;
use axum::http::HeaderMap;
use serde_json::Value;

use crate::error::ApiError;
use crate::openapi::{Field, FieldKind};

const HEADER: &str = "idempotency-key";
const KEY_CHARS_MAX: usize = 255;
pub(crate) const IDEMPOTENCY_KEY: Field = Field::optional(
    "Idempotency-Key",
    FieldKind::Pattern { pattern: "^[!-~]*$", chars_max: KEY_CHARS_MAX },
    "Identifies the request if it is repeated: it takes effect only once, and a repetition gets the original response.",
);
/// Hexadecimal digits of the digest in a derived instance id.
const DERIVED_ID_DIGITS: usize = 32;

/// A client's key and the digest of the request body, by which the shard tells a repetition from another request with
/// the same key.
#[derive(Debug)]
pub(crate) struct ClientIdempotencyKey<'a> {
    key: &'a str,
    payload_digest: Digest,
}

impl<'a> ClientIdempotencyKey<'a> {
    /// The key of a request, if it has one. The body is digested in a canonical form, so that white space and the order
    /// of fields do not matter.
    pub(crate) fn from_request(
        headers: &'a HeaderMap,
        body: Option<&Value>,
    ) -> Result<Option<Self>, ApiError> {
        let invalid = |message: &str| ApiError::invalid("Idempotency-Key", message);
        let mut given = headers.get_all(HEADER).iter();
        let Some(key) = given.next() else { return Ok(None) };
        if given.next().is_some() {
            return Err(invalid("duplicate header"));
        }
        let key = key.to_str().ok().filter(|key| {
            (1..=KEY_CHARS_MAX).contains(&key.len()) && key.bytes().all(|byte| byte.is_ascii_graphic())
        });
        let key = key.ok_or_else(|| invalid("must have 1 to 255 visible ASCII characters"))?;
        // Object members are sorted by name.
        let body = serde_json::to_vec(&body).map_err(|error| ApiError::internal(&error))?;
        Ok(Some(Self { key, payload_digest: Digest::of_parts(&[&body]) }))
    }

    /// The instance id of a start request that has none, derived from the key.
    pub(crate) fn instance_id(&self, workflow: &str) -> Result<InstanceId, ApiError> {
        let mut id = Digest::of_parts(&[workflow.as_bytes(), self.key.as_bytes()]).to_string();
        id.truncate(DERIVED_ID_DIGITS);
        InstanceId::new(format!("k-{id}")).map_err(|error| ApiError::internal(&error))
    }

    /// The idempotency of a start. `names_instance` is set if the instance id was derived from the key.
    pub(crate) fn for_start(
        &self,
        workflow: &str,
        id: &InstanceId,
        names_instance: bool,
    ) -> RequestIdempotency {
        let key = KeyDigest::of_parts(&[workflow.as_bytes(), id.as_str().as_bytes(), self.key.as_bytes()]);
        RequestIdempotency {
            derives_instance_id: names_instance,
            ..RequestIdempotency::new(key, self.payload_digest)
        }
    }

    /// The idempotency of any other request to an instance. `operation` and the label are part of stored keys: they
    /// must never change.
    pub(crate) fn for_control(&self, operation: &str, id: &InstanceId) -> RequestIdempotency {
        let key = KeyDigest::of_parts(&[
            b"order",
            operation.as_bytes(),
            id.as_str().as_bytes(),
            self.key.as_bytes(),
        ]);
        RequestIdempotency::new(key, self.payload_digest)
    }
}

impl ClientIdempotencyKey<'_> {
    /// The idempotency of an operation on an entity.
    pub(super) fn for_operation(&self, operation: &str, entity: &str) -> RequestIdempotency {
        let parts = [b"operation", operation.as_bytes(), entity.as_bytes(), self.key.as_bytes()];
        RequestIdempotency::new(KeyDigest::of_parts(&parts), self.payload_digest)
    }
}

/// Makes a request to an instance idempotent if it has a key. Starts and entity operations have the key in the request
/// itself.
pub(super) fn with_idempotency(
    idempotency: Option<RequestIdempotency>,
    request: ShardRequest,
) -> ShardRequest {
    match idempotency {
        Some(idempotency) => ShardRequest::Idempotent(idempotency, Box::new(request)),
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
    fn the_same_body_in_another_json_notation_is_the_same_request() {
        let headers = headers(b"k");
        let digest = |text: &str| {
            let body = abide_workflow::json::parse(text).unwrap();
            ClientIdempotencyKey::from_request(&headers, Some(&body)).unwrap().unwrap().payload_digest
        };
        assert_eq!(digest(r#"{"b": [1, 2], "a": 1}"#), digest(r#"{"a":1,"b":[1,2]}"#));
        assert_ne!(digest(r#"{"a": 1}"#), digest(r#"{"a": 2}"#));
    }

    #[test]
    fn a_key_derives_one_instance_id_per_workflow() {
        let one = headers(b"one");
        let other = headers(b"other");
        let body = json!({});
        let id = |headers: &HeaderMap, workflow: &str| {
            let key = ClientIdempotencyKey::from_request(headers, Some(&body)).unwrap().unwrap();
            key.instance_id(workflow).unwrap().as_str().to_owned()
        };
        assert_eq!(id(&one, "w"), id(&one, "w"));
        assert!(id(&one, "w") != id(&other, "w") && id(&one, "w") != id(&one, "v"));
        assert!(id(&one, "w").starts_with("k-") && id(&one, "w").len() == 34);
    }

    #[test]
    fn a_key_that_is_empty_too_long_or_not_visible_ascii_is_rejected() {
        for key in [&b""[..], b"a b", b"\xc3\xa4", &[b'a'; 256]] {
            assert!(ClientIdempotencyKey::from_request(&headers(key), None).is_err(), "{key:?}");
        }
        let mut twice = headers(b"a");
        twice.append(HEADER, HeaderValue::from_static("b"));
        assert!(ClientIdempotencyKey::from_request(&twice, None).is_err());
        assert!(ClientIdempotencyKey::from_request(&HeaderMap::new(), None).unwrap().is_none());
    }
}
