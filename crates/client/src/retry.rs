//! Decides which failed requests are retried, and after which delay. It knows nothing about connections.

use std::time::Duration;

use crate::error::{ClientError, ErrorCode};

/// The effect of sending a request twice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RetrySafety {
    /// The request only reads, or names what it creates, or has an idempotency key.
    Safe,
    /// A repeated request may take effect twice.
    Unsafe,
}

/// The delay before the first retry. It doubles with every further retry.
const RETRY_DELAY_FIRST: Duration = Duration::from_millis(50);
/// The longest delay, even if the server asks for a longer one.
const RETRY_DELAY_MAX: Duration = Duration::from_secs(5);

/// The delay before the next retry, or `None` if the request must not be retried. `failures` counts from 1.
pub(crate) fn retry_delay(
    error: &ClientError,
    retry_safety: RetrySafety,
    failures: u32,
    retry_after: Option<Duration>,
) -> Option<Duration> {
    let may_retry = match error {
        // Nothing was sent.
        ClientError::Unreachable { .. } => true,
        ClientError::Interrupted { .. } => retry_safety == RetrySafety::Safe,
        ClientError::Refused(response) => match response.code {
            // The server rejected the request before it did anything.
            ErrorCode::RateLimited => true,
            // The request may have taken effect: a server can accept it and fail before it responds.
            ErrorCode::ServiceUnavailable => retry_safety == RetrySafety::Safe,
            _ => false,
        },
        _ => false,
    };
    let doubled = RETRY_DELAY_FIRST.saturating_mul(1 << failures.saturating_sub(1).min(10));
    may_retry.then(|| retry_after.unwrap_or(doubled).min(RETRY_DELAY_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorResponse;

    fn refused(code: ErrorCode) -> ClientError {
        let message = String::new();
        let correlation_id = String::new();
        let response =
            ErrorResponse { status: 0, code, message, target: None, details: Vec::new(), correlation_id };
        ClientError::Refused(Box::new(response))
    }

    #[test]
    fn a_request_that_may_have_taken_effect_is_retried_only_if_that_is_safe() {
        let server = || "h:1".to_owned();
        let unreachable = ClientError::Unreachable {
            server: server(),
            source: std::io::ErrorKind::ConnectionRefused.into(),
        };
        let interrupted = ClientError::Interrupted { server: server(), source: "gone".into() };
        let may_retry =
            |error: &ClientError, retry_safety| retry_delay(error, retry_safety, 1, None).is_some();
        for (error, safe, not_safe) in [
            (&unreachable, true, true),
            (&interrupted, true, false),
            (&refused(ErrorCode::RateLimited), true, true),
            (&refused(ErrorCode::ServiceUnavailable), true, false),
            (&refused(ErrorCode::Conflict), false, false),
            (&refused(ErrorCode::ValidationError), false, false),
            (&ClientError::Timeout { server: server(), within: RETRY_DELAY_MAX }, false, false),
        ] {
            let retried = (may_retry(error, RetrySafety::Safe), may_retry(error, RetrySafety::Unsafe));
            assert_eq!(retried, (safe, not_safe), "{error}");
        }
    }

    #[test]
    fn delays_double_and_the_server_may_set_one_within_bounds() {
        let delay = |failures, retry_after| {
            retry_delay(&refused(ErrorCode::RateLimited), RetrySafety::Safe, failures, retry_after).unwrap()
        };
        assert_eq!(
            [delay(1, None), delay(2, None), delay(3, None)],
            [50, 100, 200].map(Duration::from_millis)
        );
        assert_eq!(delay(u32::MAX, None), RETRY_DELAY_MAX);
        assert_eq!(delay(1, Some(Duration::from_secs(1))), Duration::from_secs(1));
        assert_eq!(delay(1, Some(Duration::from_secs(3600))), RETRY_DELAY_MAX);
    }
}
