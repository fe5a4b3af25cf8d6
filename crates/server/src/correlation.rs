//! The correlation id of one request: the caller's, or a new one. It goes into every response, so it is checked before anything else.

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use uuid::Uuid;

/// The header that carries it, both ways.
pub(crate) const HEADER: HeaderName = HeaderName::from_static("x-correlation-id");

/// Characters a correlation id may have.
pub(crate) const CHARS_MAX: usize = 128;

/// A correlation id: visible ASCII, so that it can stand in headers, logs and JSON as it is.
#[derive(Clone, Debug)]
pub(crate) struct CorrelationId {
    value: HeaderValue,
    given: bool,
}

impl CorrelationId {
    /// The id of a request. One that could not be passed on is replaced.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        match headers.get(HEADER) {
            Some(value) if is_usable(value.as_bytes()) => Self { value: value.clone(), given: true },
            _ => Self::make(),
        }
    }

    fn make() -> Self {
        let mut text = [0; uuid::fmt::Hyphenated::LENGTH];
        let text = Uuid::now_v7().hyphenated().encode_lower(&mut text);
        // A UUID is nothing but hexadecimal digits and hyphens.
        let value = HeaderValue::from_str(text).unwrap_or(HeaderValue::from_static("none"));
        Self { value, given: false }
    }

    pub(crate) fn as_str(&self) -> &str {
        self.value.to_str().unwrap_or_default()
    }

    /// As the response's header.
    pub(crate) fn header(&self) -> HeaderValue {
        self.value.clone()
    }

    /// Whether the caller gave it. One that was made here is new, and can name what the request makes.
    pub(crate) fn is_given(&self) -> bool {
        self.given
    }
}

/// Whether these bytes can be a correlation id.
pub(crate) fn is_usable(bytes: &[u8]) -> bool {
    (1..=CHARS_MAX).contains(&bytes.len()) && bytes.iter().all(u8::is_ascii_graphic)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(value: &[u8]) -> CorrelationId {
        let mut headers = HeaderMap::new();
        headers.insert(HEADER, HeaderValue::from_bytes(value).unwrap());
        CorrelationId::of(&headers)
    }

    #[test]
    fn a_usable_id_is_kept_and_any_other_is_replaced() {
        assert_eq!((of(b"order-7").as_str(), of(b"order-7").is_given()), ("order-7", true));
        for unusable in [&b""[..], b"a b", b"\xc3\xa4", &[b'a'; 129]] {
            let made = of(unusable);
            assert!(!made.is_given() && Uuid::parse_str(made.as_str()).is_ok(), "{unusable:?}");
        }
        assert_ne!(of(b"").as_str(), CorrelationId::of(&HeaderMap::new()).as_str());
    }
}
