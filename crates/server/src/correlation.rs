//! The correlation id of one request: the client's, or a new one. Every response carries it, so it is checked first.

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use uuid::Uuid;

/// The header of request and response.
pub(crate) const HEADER: HeaderName = HeaderName::from_static("x-correlation-id");

pub(crate) const CHARS_MAX: usize = 128;

/// Visible ASCII, so that it can be used in headers, logs and JSON unchanged.
#[derive(Clone, Debug)]
pub(crate) struct CorrelationId {
    value: HeaderValue,
    from_caller: bool,
}

impl CorrelationId {
    /// The request's correlation id. A missing or invalid one is replaced.
    pub(crate) fn from_headers(headers: &HeaderMap) -> Self {
        match headers.get(HEADER) {
            Some(value) if is_valid(value.as_bytes()) => Self { value: value.clone(), from_caller: true },
            _ => Self::generate(),
        }
    }

    fn generate() -> Self {
        let mut text = [0; uuid::fmt::Hyphenated::LENGTH];
        let text = Uuid::now_v7().hyphenated().encode_lower(&mut text);
        // A UUID is nothing but hexadecimal digits and hyphens.
        let value = HeaderValue::from_str(text).unwrap_or(HeaderValue::from_static("none"));
        Self { value, from_caller: false }
    }

    pub(crate) fn as_str(&self) -> &str {
        self.value.to_str().unwrap_or_default()
    }

    pub(crate) fn header_value(&self) -> HeaderValue {
        self.value.clone()
    }

    /// True if the client sent it. A generated id is unique, so it can also identify what the request creates.
    pub(crate) fn is_from_caller(&self) -> bool {
        self.from_caller
    }
}

/// True if these bytes can be a correlation id, wherever the client put it: a header, a start's body or a CloudEvent.
pub(crate) fn is_valid(bytes: &[u8]) -> bool {
    (1..=CHARS_MAX).contains(&bytes.len()) && bytes.iter().all(u8::is_ascii_graphic)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_header(value: &[u8]) -> CorrelationId {
        let mut headers = HeaderMap::new();
        headers.insert(HEADER, HeaderValue::from_bytes(value).unwrap());
        CorrelationId::from_headers(&headers)
    }

    #[test]
    fn a_valid_id_is_kept_and_any_other_is_replaced() {
        assert_eq!(
            (with_header(b"order-7").as_str(), with_header(b"order-7").is_from_caller()),
            ("order-7", true)
        );
        for invalid in [&b""[..], b"a b", b"\xc3\xa4", &[b'a'; 129]] {
            let generated = with_header(invalid);
            assert!(
                !generated.is_from_caller() && Uuid::parse_str(generated.as_str()).is_ok(),
                "{invalid:?}"
            );
        }
        assert_ne!(with_header(b"").as_str(), CorrelationId::from_headers(&HeaderMap::new()).as_str());
    }
}
