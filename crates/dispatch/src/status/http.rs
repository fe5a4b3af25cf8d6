//! Classifies HTTP responses that are not a success: by the status in the body if there is one, else by the HTTP
//! status.
//!
//! The same for every transport over HTTP, the built-in `http.request` included. Does not parse bodies itself; what a
//! body without a status says is in `excerpt`.

use super::excerpt::AnsweredBody;
use super::{RETRY_AFTER_MS_MAX, RpcCode, RpcStatus};
use crate::transport::CallFailure;

/// The parts of an HTTP response that say how a call failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FailureResponse<'r> {
    /// The HTTP status code.
    pub status: u16,
    /// The status in the body, if the body is one.
    pub body_status: Option<RpcStatus>,
    /// The value of the `Retry-After` header.
    pub retry_after: Option<&'r str>,
    /// Who answered, for the message: the address without its query.
    pub server: &'r str,
    /// What the server says itself.
    pub body: AnsweredBody<'r>,
}

impl FailureResponse<'_> {
    /// The failure that the response means; none for a success.
    ///
    /// A rejection by the server is permanent, unless it only asks to retry later. The server's own errors may pass.
    pub fn into_failure(self) -> Option<CallFailure> {
        let Self { status, body_status, retry_after, server, body } = self;
        let answered = || format!("{server} answered {status}{}", body.describe_failure());
        // Any form counts: even a date, which is not parsed here, says that the request was rejected.
        let retry_after = retry_after.filter(|_| matches!(status, 429 | 503));
        let failure = match (status, body_status) {
            (200..=299, _) => return None,
            (300..=399, _) => {
                let message = format!("{server} answered {status}; redirects are not followed");
                CallFailure::permanent("RedirectRefused", message).with_status(status.to_string())
            }
            // A body that says OK is ignored: the HTTP status says that the call failed.
            (_, Some(said)) if said.code != RpcCode::Ok => {
                let diagnosis = format!("{status} {}", said.code);
                let outcome_unknown =
                    said.is_outcome_unknown(retry_after.is_some() || said.retry_after_ms.is_some());
                CallFailure { outcome_unknown, ..CallFailure::from(said) }.with_status(diagnosis)
            }
            _ if is_retryable(status) => {
                let failure = CallFailure::retryable(format!("Http{status}"), answered());
                // A server that asks to retry later has not started. Other statuses may come from a proxy in front of
                // the activity, which may be running.
                let outcome_unknown = status != 429 && retry_after.is_none();
                CallFailure { outcome_unknown, ..failure }.with_status(status.to_string())
            }
            _ => CallFailure::permanent(format!("Http{status}"), answered()).with_status(status.to_string()),
        };
        let header_ms = retry_after.and_then(parse_retry_after_ms);
        Some(CallFailure { retry_after_ms: header_ms.or(failure.retry_after_ms), ..failure })
    }
}

/// True if another attempt may help, judged by the HTTP status alone.
pub fn is_retryable(status: u16) -> bool {
    matches!(status, 408 | 429 | 500..=599)
}

impl RpcCode {
    /// The code nearest to an HTTP status, for display. [`is_retryable`] says whether another attempt may help.
    pub fn from_http_status(status: u16) -> Self {
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

/// The milliseconds of a `Retry-After` header in seconds, at most [`RETRY_AFTER_MS_MAX`]. A date is ignored: it would
/// need a clock that both sides share.
pub fn parse_retry_after_ms(header: &str) -> Option<u64> {
    let digits = header.trim();
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    // A number that is too large to parse is a long time, too.
    let seconds: u64 = digits.parse().unwrap_or(u64::MAX);
    Some(seconds.saturating_mul(1_000).min(RETRY_AFTER_MS_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::reason;

    fn of(status: u16, body_status: Option<RpcStatus>) -> Option<(String, bool)> {
        let response = FailureResponse {
            status,
            body_status,
            retry_after: None,
            server: "http://a.test",
            body: AnsweredBody::default(),
        };
        response.into_failure().map(|failure| (failure.code, failure.retryable))
    }

    #[test]
    fn without_a_status_in_the_body_the_http_status_decides() {
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
    fn a_status_in_the_body_overrides_the_http_status() {
        for code in RpcCode::all().filter(|code| *code != RpcCode::Ok) {
            for status in [400, 404, 409, 500, 503] {
                let body_status = Some(RpcStatus::new(code, "so"));
                assert_eq!(
                    of(status, body_status),
                    Some((code.name().to_owned(), code.is_retryable())),
                    "{status}"
                );
            }
        }
        let fine = Some(RpcStatus::new(RpcCode::Ok, "all is well"));
        assert_eq!(
            of(404, fine.clone()),
            Some(("Http404".to_owned(), false)),
            "a body that says OK is ignored"
        );
        let failed = Some(RpcStatus::new(RpcCode::NotFound, "no"));
        assert_eq!(of(200, failed.clone()), None, "a success stays a success");
        assert_eq!(of(302, failed), Some(("RedirectRefused".to_owned(), false)));
    }

    #[test]
    fn retry_after_is_read_in_seconds_and_only_from_429_and_503() {
        let delay_ms = |status, retry_after| {
            let response = FailureResponse {
                status,
                body_status: None,
                retry_after: Some(retry_after),
                server: "",
                body: AnsweredBody::default(),
            };
            response.into_failure().and_then(|failure| failure.retry_after_ms)
        };
        assert_eq!((delay_ms(429, "2"), delay_ms(503, " 0 ")), (Some(2_000), Some(0)));
        assert_eq!((delay_ms(500, "2"), delay_ms(404, "2")), (None, None));
        for none in ["", "-1", "1.5", "+1", "soon", "Wed, 21 Oct 2015 07:28:00 GMT"] {
            assert_eq!(delay_ms(429, none), None, "{none}");
        }
        for long in ["3600", "999999", "99999999999999999999999"] {
            assert_eq!(delay_ms(503, long), Some(RETRY_AFTER_MS_MAX));
        }
        let body_status = Some(RpcStatus::new(RpcCode::Unavailable, "").with_retry_after_ms(7));
        let body = FailureResponse {
            status: 503,
            body_status,
            retry_after: None,
            server: "",
            body: AnsweredBody::default(),
        };
        assert_eq!(body.into_failure().unwrap().retry_after_ms, Some(7));
    }

    #[test]
    fn a_503_is_a_rejection_only_with_a_retry_delay_or_a_contract_reason() {
        let of = |body_status: Option<RpcStatus>, retry_after| {
            let failure = FailureResponse {
                status: 503,
                body_status,
                retry_after,
                server: "",
                body: AnsweredBody::default(),
            }
            .into_failure()
            .unwrap();
            (failure.outcome_unknown, failure.is_rejected_before_handler())
        };
        let rejected = (false, true);
        let unknown = (true, false);
        let unavailable = || RpcStatus::new(RpcCode::Unavailable, "");
        let word = |word: &str| unavailable().with_reason(word).with_domain(reason::DOMAIN);
        assert_eq!(of(None, None), unknown, "a proxy may have lost the response");
        assert_eq!(of(Some(unavailable()), None), unknown);
        for wait in ["1", "Wed, 21 Oct 2015 07:28:00 GMT"] {
            assert_eq!(of(None, Some(wait)), rejected, "{wait}");
            assert_eq!(of(Some(unavailable()), Some(wait)), rejected, "{wait}");
            assert_eq!(of(Some(word(reason::OUTCOME_UNKNOWN)), Some(wait)), unknown, "{wait}");
        }
        assert_eq!(of(Some(unavailable().with_retry_after_ms(1)), None), rejected);
        for refusal in [reason::STOPPING, reason::TOO_MANY_RUNNING] {
            assert_eq!(of(Some(word(refusal)), None), rejected, "{refusal}");
            let elsewhere = unavailable().with_reason(refusal).with_domain("payments");
            assert_eq!(of(Some(elsewhere), None), unknown, "{refusal} of another domain");
        }
        for other in [reason::STORE_UNAVAILABLE, reason::OUTCOME_UNKNOWN, "CARD_READER_OFF"] {
            assert_eq!(of(Some(word(other)), None), unknown, "{other}");
        }
    }

    #[test]
    fn the_diagnosis_has_the_number_and_the_name() {
        let failure = |body_status| {
            FailureResponse {
                status: 503,
                body_status,
                retry_after: None,
                server: "",
                body: AnsweredBody::default(),
            }
            .into_failure()
            .unwrap()
        };
        assert_eq!(failure(None).status.as_deref(), Some("503"));
        let aborted = failure(Some(RpcStatus::new(RpcCode::Aborted, "")));
        assert_eq!(aborted.status.as_deref(), Some("503 ABORTED"));
    }

    #[test]
    fn every_http_status_of_the_table_leads_back_to_one_of_its_codes() {
        for code in RpcCode::all() {
            assert_eq!(
                RpcCode::from_http_status(code.http_status()).http_status(),
                code.http_status(),
                "{code}"
            );
        }
        for status in 400..=599_u16 {
            // A 501 may come from a proxy in front of a server that knows the method.
            let agrees = RpcCode::from_http_status(status).is_retryable() == is_retryable(status);
            assert!(agrees || status == 501, "{status}");
        }
    }
}
