//! The headers of outgoing requests: those that a caller may choose, and the canonical metadata.
//!
//! A header that would break out of its line is rejected. A header that belongs to the connection, to the canonical
//! metadata or to a cloud's metadata service is left out. Knows nothing about bodies.

use hyper::header::{CONNECTION, HeaderMap, HeaderName, HeaderValue};

use crate::metadata::{self, Metadata};

/// A header that cannot be sent.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the {part} of header {name:?} contains invalid characters")]
pub(crate) struct InvalidHeader {
    pub(crate) name: String,
    /// `name` or `value`. The value itself is not shown: it may be a secret.
    pub(crate) part: &'static str,
}

/// Headers that belong to the connection, and those that only this side may set.
const RESERVED_HEADERS: &[&str] = &[
    "connection",
    "content-length",
    "expect",
    "host",
    "http2-settings",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Headers that cloud metadata services require: leaving them out is a second barrier behind the egress guard.
const CLOUD_METADATA_HEADERS: &[&str] = &[
    "metadata",
    "metadata-flavor",
    "x-aws-ec2-metadata-token",
    "x-aws-ec2-metadata-token-ttl-seconds",
    "x-google-metadata-request",
];

/// The header names of the canonical metadata, parsed once rather than for every call.
static METADATA_HEADER_NAMES: [HeaderName; 7] = [
    HeaderName::from_static(metadata::CORRELATION_ID),
    HeaderName::from_static(metadata::EXECUTION_ID),
    HeaderName::from_static(metadata::IDEMPOTENCY_KEY),
    HeaderName::from_static(metadata::RETRY_ATTEMPT),
    HeaderName::from_static(metadata::DEADLINE),
    HeaderName::from_static(metadata::DISPATCHED_AT),
    HeaderName::from_static(metadata::PARENT_ITEM_ID),
];

const CANONICAL_PREFIX: &str = "x-tpf-";

/// The caller's headers, without those that a caller may not set.
pub(crate) fn caller_headers<'h>(
    headers: impl Iterator<Item = (&'h str, &'h str)>,
) -> Result<HeaderMap, InvalidHeader> {
    let mut outgoing = HeaderMap::new();
    for (name, value) in headers {
        let invalid = |part| InvalidHeader { name: name.to_owned(), part };
        let header = HeaderName::from_bytes(name.as_bytes()).map_err(|_| invalid("name"))?;
        // Bytes rather than text: UTF-8 passes, line ends and NUL do not.
        let mut value = HeaderValue::from_bytes(value.as_bytes()).map_err(|_| invalid("value"))?;
        value.set_sensitive(true);
        outgoing.insert(header, value);
    }
    // A connection header may declare that any other header belongs to the connection.
    let declared =
        outgoing.get(CONNECTION).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
    for name in declared.split(',').map(str::trim).filter(|name| !name.is_empty()) {
        outgoing.remove(name);
    }
    for name in RESERVED_HEADERS.iter().chain(CLOUD_METADATA_HEADERS) {
        outgoing.remove(*name);
    }
    let canonical: Vec<HeaderName> =
        outgoing.keys().filter(|name| name.as_str().starts_with(CANONICAL_PREFIX)).cloned().collect();
    for name in canonical {
        outgoing.remove(name);
    }
    Ok(outgoing)
}

/// Adds the canonical metadata as headers.
pub(crate) fn add_metadata_headers(
    metadata: &Metadata,
    headers: &mut HeaderMap,
) -> Result<(), InvalidHeader> {
    for (name, value) in metadata.encode() {
        let invalid = |_| InvalidHeader { name: name.to_owned(), part: "value" };
        let value = HeaderValue::from_bytes(value.as_bytes()).map_err(invalid)?;
        match METADATA_HEADER_NAMES.iter().find(|known| known.as_str() == name) {
            Some(known) => headers.insert(known, value),
            None => headers.insert(name, value),
        };
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outgoing(headers: &[(&str, &str)]) -> Result<Vec<String>, InvalidHeader> {
        let mut names: Vec<String> =
            caller_headers(headers.iter().copied())?.keys().map(|name| name.as_str().to_owned()).collect();
        names.sort();
        Ok(names)
    }

    #[test]
    fn a_header_that_breaks_out_of_its_line_is_rejected() {
        for value in ["a\r\nb: c", "a\nb", "a\rb", "a\0b", "\u{7f}"] {
            assert_eq!(outgoing(&[("x-a", value)]).unwrap_err().part, "value", "{value:?}");
        }
        for name in ["", "a b", "a:b", "a\r\nb", "a\0", "ä", "(a)"] {
            assert_eq!(outgoing(&[(name, "v")]).unwrap_err().part, "name", "{name:?}");
        }
    }

    #[test]
    fn headers_that_a_caller_may_not_set_are_left_out() {
        for name in RESERVED_HEADERS.iter().chain(CLOUD_METADATA_HEADERS) {
            assert_eq!(outgoing(&[(&name.to_uppercase(), "v"), ("x-kept", "v")]).unwrap(), ["x-kept"]);
        }
        let declared = [
            ("Connection", "close, X-Hop ,"),
            ("x-hop", "v"),
            ("X-Tpf-Parent-Item-Id", "forged"),
            ("A", "v"),
        ];
        assert_eq!(outgoing(&declared).unwrap(), ["a"]);
    }

    #[test]
    fn metadata_that_breaks_out_of_its_line_is_rejected() {
        let mut metadata = metadata::tests::metadata();
        let mut headers = HeaderMap::new();
        add_metadata_headers(&metadata, &mut headers).unwrap();
        assert_eq!(headers.len(), 7);
        metadata.correlation_id = "a\r\nx: y".to_owned();
        assert_eq!(add_metadata_headers(&metadata, &mut headers).unwrap_err().name, "x-tpf-correlation-id");
    }
}
