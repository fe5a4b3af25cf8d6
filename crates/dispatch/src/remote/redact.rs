//! Removes secrets from failures: a service may repeat the secrets that it was sent, and failures are stored and shown.
//!
//! Only failures are redacted: the output of an activity is its own data. Knows nothing about where secrets come from.

use serde_json::Value;

use crate::transport::{AttemptResult, CallFailure};

/// The text that replaces a secret.
const REDACTED: &str = "[secret]";
/// Shorter secrets are not removed: they occur in any text.
const BYTES_MIN: usize = 4;

/// The secrets that were sent with one call.
#[derive(Default)]
pub(crate) struct SentSecrets(Vec<String>);

impl SentSecrets {
    /// Adds a secret. A service may repeat it as JSON, so the escaped form is removed too.
    pub(super) fn add(&mut self, secret: &str) {
        let escaped = Value::from(secret).to_string();
        // Without the quotes around it.
        let escaped = escaped.get(1..escaped.len() - 1).unwrap_or_default();
        for form in [secret, escaped] {
            if form.len() >= BYTES_MIN && !self.0.iter().any(|known| known == form) {
                self.0.push(form.to_owned());
            }
        }
        // Longest first: a secret may be part of another.
        self.0.sort_by_key(|form| std::cmp::Reverse(form.len()));
    }

    /// The result; if it is a failure, without the secrets.
    pub(crate) fn redact_result(&self, result: AttemptResult) -> AttemptResult {
        match result {
            AttemptResult::Failed(failure) => AttemptResult::Failed(self.redact_failure(failure)),
            completed => completed,
        }
    }

    /// The failure without the secrets. A code that does not come from the service stays: definitions match on it.
    pub(super) fn redact_failure(&self, mut failure: CallFailure) -> CallFailure {
        let is_code_of_service = failure.status.as_deref().is_some_and(|status| status.contains(' '));
        for secret in &self.0 {
            redact_text(&mut failure.message, secret);
            if is_code_of_service {
                redact_text(&mut failure.code, secret);
            }
        }
        failure
    }
}

/// Removes a secret from a text, also if only its beginning is left at the very end: texts are truncated.
fn redact_text(text: &mut String, secret: &str) {
    if text.contains(secret) {
        *text = text.replace(secret, REDACTED);
    }
    let mut beginnings = (BYTES_MIN..secret.len()).rev().filter_map(|bytes| secret.get(..bytes));
    if let Some(beginning) = beginnings.find(|beginning| text.ends_with(beginning)) {
        text.truncate(text.len() - beginning.len());
        text.push_str(REDACTED);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(secrets: &[&str], failure: CallFailure) -> (String, String) {
        let mut sent = SentSecrets::default();
        secrets.iter().for_each(|secret| sent.add(secret));
        let CallFailure { code, message, .. } = sent.redact_failure(failure);
        (code, message)
    }

    #[test]
    fn secrets_are_removed_from_the_code_and_message_of_a_service() {
        let failure =
            CallFailure::permanent("NO_hunter2", "abc: hunter2hunter2").with_status("400 INVALID_ARGUMENT");
        let expected = ("NO_[secret]".to_owned(), "abc: [secret][secret]".to_owned());
        assert_eq!(shown(&["hunter2", "abc", ""], failure), expected);
    }

    #[test]
    fn escaped_truncated_and_nested_secrets_are_removed_too() {
        let message =
            |secrets: &[&str], message: &str| shown(secrets, CallFailure::permanent("X", message)).1;
        assert_eq!(message(&["a\"b\nc"], r#"got {"key":"a\"b\nc"}"#), r#"got {"key":"[secret]"}"#);
        assert_eq!(message(&["quote\""], r#"got {"key":"quote\""}"#), r#"got {"key":"[secret]"}"#);
        assert_eq!(message(&["hunter2-and-more"], "got hunter2-an"), "got [secret]");
        assert_eq!(message(&["abcd", "abcdefgh"], "got abcdefgh and abcd"), "got [secret] and [secret]");
    }

    #[test]
    fn codes_of_this_side_are_not_redacted() {
        let own = CallFailure::retryable("AttemptTimeout", "no answer in Time");
        assert_eq!(shown(&["Time"], own), ("AttemptTimeout".to_owned(), "no answer in [secret]".to_owned()));
    }
}
