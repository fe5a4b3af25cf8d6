//! What an HTTP response that is not a success means: its body decides if it is a status, else its number does.
//!
//! The same for every transport over HTTP, the built-in `http.request` included. Reads no bodies itself.

use super::{Code, RETRY_AFTER_MS_MAX, Status};
use crate::transport::Failure;

/// An HTTP response, as far as it says how a call went.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Response<'r> {
    /// Its number.
    pub status: u16,
    /// The status that its body is, if it is one.
    pub told: Option<Status>,
    /// Its `Retry-After` header.
    pub retry_after: Option<&'r str>,
    /// Who answered, for the message.
    pub server: &'r str,
}

impl Response<'_> {
    /// The failure it tells of; none for success.
    ///
    /// What a server refuses is refused for good, except where it only asks for patience. Its own troubles may pass.
    pub fn failure(self) -> Option<Failure> {
        let Self { status, told, retry_after, server } = self;
        let answered = || format!("{server} answered {status}");
        // In whatever form: also a date that nobody here can read says that it was refused.
        let patience = retry_after.filter(|_| matches!(status, 429 | 503));
        let failure = match (status, told) {
            (200..=299, _) => return None,
            (300..=399, _) => {
                let message = format!("{}; redirects are not followed", answered());
                Failure::for_good("RedirectRefused", message).with_status(status.to_string())
            }
            // A failure that says it is none says nothing.
            (_, Some(told)) if told.code != Code::Ok => {
                let diagnosis = format!("{status} {}", told.code);
                let outcome_unknown = told.is_unsure(patience.is_some() || told.retry_after_ms.is_some());
                Failure { outcome_unknown, ..Failure::from(told) }.with_status(diagnosis)
            }
            _ if is_retryable(status) => {
                let failure = Failure::retryable(format!("Http{status}"), answered());
                // Who asks for patience has not begun. Other numbers may come from whoever stands before the activity, which may be at it.
                let outcome_unknown = status != 429 && patience.is_none();
                Failure { outcome_unknown, ..failure }.with_status(status.to_string())
            }
            _ => Failure::for_good(format!("Http{status}"), answered()).with_status(status.to_string()),
        };
        let asked = patience.and_then(retry_after_ms);
        Some(Failure { retry_after_ms: asked.or(failure.retry_after_ms), ..failure })
    }
}

/// Whether another delivery may help where the number is all there is.
pub fn is_retryable(status: u16) -> bool {
    matches!(status, 408 | 429 | 500..=599)
}

impl Code {
    /// The code that comes nearest to an HTTP status, for showing it. Whether another delivery may help is for [`is_retryable`] to say.
    pub fn from_http(status: u16) -> Self {
        match status {
            200..=299 => Self::Ok,
            401 => Self::Unauthenticated,
            403 => Self::PermissionDenied,
            404 | 410 => Self::NotFound,
            408 | 504 => Self::DeadlineExceeded,
            409 => Self::AlreadyExists,
            412 => Self::FailedPrecondition,
            429 => Self::ResourceExhausted,
            499 => Self::Cancelled,
            400..=498 => Self::InvalidArgument,
            501 => Self::Unimplemented,
            502 | 503 => Self::Unavailable,
            500..=599 => Self::Internal,
            _ => Self::Unknown,
        }
    }
}

/// The milliseconds of a `Retry-After` header in seconds, within [`RETRY_AFTER_MS_MAX`]. A date is no hint here: it would need a clock that
/// both sides share.
pub fn retry_after_ms(header: &str) -> Option<u64> {
    let digits = header.trim();
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    // More digits than a number has are a long time, too.
    let seconds: u64 = digits.parse().unwrap_or(u64::MAX);
    Some(seconds.saturating_mul(1_000).min(RETRY_AFTER_MS_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::reason;

    fn of(status: u16, told: Option<Status>) -> Option<(String, bool)> {
        let response = Response { status, told, retry_after: None, server: "http://a.test" };
        response.failure().map(|failure| (failure.code, failure.retryable))
    }

    #[test]
    fn without_a_status_in_the_body_the_number_decides() {
        for status in [200, 201, 204, 299] {
            assert_eq!(of(status, None), None);
        }
        for status in [301, 302, 304, 307, 308] {
            assert_eq!(of(status, None), Some(("RedirectRefused".to_owned(), false)));
        }
        for status in 400..=599 {
            let retryable = status >= 500 || status == 408 || status == 429;
            assert_eq!(of(status, None), Some((format!("Http{status}"), retryable)));
        }
        for status in [101, 600, 999] {
            assert_eq!(of(status, None), Some((format!("Http{status}"), false)));
        }
    }

    #[test]
    fn a_status_in_the_body_decides_whatever_the_number_says() {
        for code in Code::all().filter(|code| *code != Code::Ok) {
            for status in [400, 404, 409, 500, 503] {
                let told = Some(Status::new(code, "so"));
                assert_eq!(of(status, told), Some((code.name().to_owned(), code.is_retryable())), "{status}");
            }
        }
        let fine = Some(Status::new(Code::Ok, "all is well"));
        assert_eq!(of(404, fine.clone()), Some(("Http404".to_owned(), false)), "a failure that is none");
        let failed = Some(Status::new(Code::NotFound, "no"));
        assert_eq!(of(200, failed.clone()), None, "a success is one");
        assert_eq!(of(302, failed), Some(("RedirectRefused".to_owned(), false)));
    }

    #[test]
    fn patience_is_asked_for_in_seconds_and_only_by_429_and_503() {
        let asked = |status, retry_after| {
            let response = Response { status, told: None, retry_after: Some(retry_after), server: "" };
            response.failure().and_then(|failure| failure.retry_after_ms)
        };
        assert_eq!((asked(429, "2"), asked(503, " 0 ")), (Some(2_000), Some(0)));
        assert_eq!((asked(500, "2"), asked(404, "2")), (None, None));
        for none in ["", "-1", "1.5", "+1", "soon", "Wed, 21 Oct 2015 07:28:00 GMT"] {
            assert_eq!(asked(429, none), None, "{none}");
        }
        for long in ["3600", "999999", "99999999999999999999999"] {
            assert_eq!(asked(503, long), Some(RETRY_AFTER_MS_MAX));
        }
        let told = Some(Status::new(Code::Unavailable, "").with_retry_after_ms(7));
        let body = Response { status: 503, told, retry_after: None, server: "" };
        assert_eq!(body.failure().unwrap().retry_after_ms, Some(7));
    }

    #[test]
    fn a_503_is_a_refusal_only_if_it_says_when_to_come_back_or_that_it_was_one() {
        let of = |told: Option<Status>, retry_after| {
            let failure = Response { status: 503, told, retry_after, server: "" }.failure().unwrap();
            (failure.outcome_unknown, failure.is_turned_away())
        };
        let (refused, unsure) = ((false, true), (true, false));
        let unavailable = || Status::new(Code::Unavailable, "");
        let word = |word: &str| unavailable().with_reason(word).with_domain(reason::DOMAIN);
        assert_eq!(of(None, None), unsure, "a proxy may have lost the answer");
        assert_eq!(of(Some(unavailable()), None), unsure);
        for wait in ["1", "Wed, 21 Oct 2015 07:28:00 GMT"] {
            assert_eq!(of(None, Some(wait)), refused, "{wait}");
            assert_eq!(of(Some(unavailable()), Some(wait)), refused, "{wait}");
            assert_eq!(of(Some(word(reason::OUTCOME_UNKNOWN)), Some(wait)), unsure, "{wait}");
        }
        assert_eq!(of(Some(unavailable().with_retry_after_ms(1)), None), refused);
        for refusal in [reason::STOPPING, reason::TOO_MANY_RUNNING] {
            assert_eq!(of(Some(word(refusal)), None), refused, "{refusal}");
            let elsewhere = unavailable().with_reason(refusal).with_domain("payments");
            assert_eq!(of(Some(elsewhere), None), unsure, "{refusal} of somebody else");
        }
        for other in [reason::STORE_UNAVAILABLE, reason::OUTCOME_UNKNOWN, "CARD_READER_OFF"] {
            assert_eq!(of(Some(word(other)), None), unsure, "{other}");
        }
    }

    #[test]
    fn the_diagnosis_has_the_number_and_the_name() {
        let failure = |told| Response { status: 503, told, retry_after: None, server: "" }.failure().unwrap();
        assert_eq!(failure(None).status.as_deref(), Some("503"));
        let told = failure(Some(Status::new(Code::Aborted, "")));
        assert_eq!(told.status.as_deref(), Some("503 ABORTED"));
    }

    #[test]
    fn every_http_status_of_the_table_leads_back_to_one_of_its_codes() {
        for code in Code::all() {
            assert_eq!(Code::from_http(code.http()).http(), code.http(), "{code}");
        }
        for status in 400..=599_u16 {
            // A server that does not know a method may be a stranger in front of the one that does.
            let agrees = Code::from_http(status).is_retryable() == is_retryable(status);
            assert!(agrees || status == 501, "{status}");
        }
    }
}
