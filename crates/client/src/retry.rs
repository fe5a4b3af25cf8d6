//! Which failed calls are made again, and when. Knows nothing of HTTP's wire.

use std::time::Duration;

use crate::error::{ClientError, Code};

/// Whether doing a request twice is the same as doing it once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Repeat {
    /// It reads, or names what it makes, or brings a key by which a repeat is recognised.
    Safe,
    /// Twice is not once.
    Unsafe,
}

/// The pause before the first repeat; it doubles from one to the next.
const PAUSE_FIRST: Duration = Duration::from_millis(50);
/// The longest pause, whatever the server asks for.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// The pause after which a call may be made again: none if it may not. `failures` counts from 1.
pub(crate) fn pause_after(
    error: &ClientError,
    repeat: Repeat,
    failures: u32,
    retry_after: Option<Duration>,
) -> Option<Duration> {
    let may = match error {
        // Nothing was sent.
        ClientError::Unreachable { .. } => true,
        ClientError::Interrupted { .. } => repeat == Repeat::Safe,
        ClientError::Refused(refusal) => match refusal.code {
            // It was turned away at the door.
            Code::RateLimited => true,
            // It may have been let in: who takes something on can lose it before it answers.
            Code::ServiceUnavailable => repeat == Repeat::Safe,
            _ => false,
        },
        _ => false,
    };
    let doubled = PAUSE_FIRST.saturating_mul(1 << failures.saturating_sub(1).min(10));
    may.then(|| retry_after.unwrap_or(doubled).min(PAUSE_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Refusal;

    fn refused(code: Code) -> ClientError {
        let (message, correlation_id) = (String::new(), String::new());
        let refusal = Refusal { status: 0, code, message, target: None, details: Vec::new(), correlation_id };
        ClientError::Refused(Box::new(refusal))
    }

    #[test]
    fn what_may_have_been_done_is_repeated_only_if_twice_is_once() {
        let server = || "h:1".to_owned();
        let unreachable = ClientError::Unreachable {
            server: server(),
            source: std::io::ErrorKind::ConnectionRefused.into(),
        };
        let interrupted = ClientError::Interrupted { server: server(), source: "gone".into() };
        let may = |error: &ClientError, repeat| pause_after(error, repeat, 1, None).is_some();
        for (error, safe, not_safe) in [
            (&unreachable, true, true),
            (&interrupted, true, false),
            (&refused(Code::RateLimited), true, true),
            (&refused(Code::ServiceUnavailable), true, false),
            (&refused(Code::Conflict), false, false),
            (&refused(Code::ValidationError), false, false),
            (&ClientError::Timeout { server: server(), within: PAUSE_MAX }, false, false),
        ] {
            assert_eq!((may(error, Repeat::Safe), may(error, Repeat::Unsafe)), (safe, not_safe), "{error}");
        }
    }

    #[test]
    fn pauses_double_and_the_server_may_ask_for_its_own_within_bounds() {
        let pause = |failures, asked| {
            pause_after(&refused(Code::RateLimited), Repeat::Safe, failures, asked).unwrap()
        };
        assert_eq!(
            [pause(1, None), pause(2, None), pause(3, None)],
            [50, 100, 200].map(Duration::from_millis)
        );
        assert_eq!(pause(u32::MAX, None), PAUSE_MAX);
        assert_eq!(pause(1, Some(Duration::from_secs(1))), Duration::from_secs(1));
        assert_eq!(pause(1, Some(Duration::from_secs(3600))), PAUSE_MAX);
    }
}
