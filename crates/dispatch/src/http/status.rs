//! What an HTTP status means for another delivery, where the body is not a status of its own.

use hyper::StatusCode;

use crate::transport::Failure;

/// The failure a status tells of; none for success.
///
/// What the server refuses is refused for good, except where it only asks for patience. Its own troubles may pass.
pub(super) fn failure_of(status: StatusCode, server: &str) -> Option<Failure> {
    let told = format!("{server} answered {status}");
    let code = || format!("Http{}", status.as_u16());
    match status.as_u16() {
        200..=299 => None,
        300..=399 => {
            Some(Failure::for_good("RedirectRefused", format!("{told}; redirects are not followed")))
        }
        408 | 429 | 500..=599 => Some(Failure::retryable(code(), told)),
        _ => Some(Failure::for_good(code(), told)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_are_classified_by_the_shared_table() {
        let of = |status: u16| {
            failure_of(StatusCode::from_u16(status).unwrap(), "http://a.test")
                .map(|failure| (failure.code, failure.retryable))
        };
        for status in [200, 201, 204, 299] {
            assert_eq!(of(status), None);
        }
        for status in [301, 302, 304, 307, 308] {
            assert_eq!(of(status), Some(("RedirectRefused".to_owned(), false)));
        }
        for status in [408, 429, 500, 501, 502, 503, 504, 599] {
            assert_eq!(of(status), Some((format!("Http{status}"), true)));
        }
        for status in [400, 401, 403, 404, 409, 412, 422, 499, 101, 600, 999] {
            assert_eq!(of(status), Some((format!("Http{status}"), false)));
        }
    }
}
