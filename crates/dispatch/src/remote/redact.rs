//! Removes secrets from failures: a service may repeat the secrets that it was sent, and failures are stored, shown and
//! logged.
//!
//! Only failures are redacted: the output of an activity is its own data. Knows nothing about where secrets come from.
//! In which forms a secret is looked for is in `forms` and `views`.

mod forms;
mod views;

use std::ops::Range;

use forms::Form;
use views::View;

use crate::transport::{AttemptResult, CallFailure};

/// The text that replaces a secret.
const REDACTED: &str = "[secret]";
/// Shorter secrets are not removed: they occur in any text.
const BYTES_MIN: usize = 4;

/// The secrets that were sent with one call.
#[derive(Default)]
pub(crate) struct SentSecrets(Vec<String>);

impl SentSecrets {
    /// Adds a secret.
    pub(super) fn add(&mut self, secret: &str) {
        if secret.len() >= BYTES_MIN && !self.0.iter().any(|known| known == secret) {
            self.0.push(secret.to_owned());
        }
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
        // Nothing is prepared for the calls that succeed.
        let forms: Vec<Form> = self.0.iter().flat_map(|secret| forms::of_secret(secret)).collect();
        if forms.is_empty() {
            return failure;
        }
        failure.message = redact_text(&failure.message, &forms);
        if failure.status.as_deref().is_some_and(|status| status.contains(' ')) {
            failure.code = redact_text(&failure.code, &forms);
        }
        failure
    }
}

/// The text without secrets, also if only the beginning of one is left at its very end: texts are truncated.
fn redact_text(text: &str, forms: &[Form]) -> String {
    let mut found: Vec<Range<usize>> = Vec::new();
    for view in View::all_of(text) {
        for form in forms {
            found.extend(view.find(form));
        }
    }
    found.sort_by_key(|place| (place.start, place.end));
    let mut redacted = String::with_capacity(text.len());
    let mut shown_to = 0;
    let mut places = found.into_iter().peekable();
    while let Some(mut place) = places.next() {
        // One secret may be part of another, and one place may be found in several forms.
        while let Some(overlapping) = places.next_if(|next| next.start < place.end) {
            place.end = place.end.max(overlapping.end);
        }
        redacted.push_str(text.get(shown_to..place.start).unwrap_or_default());
        redacted.push_str(REDACTED);
        shown_to = place.end;
    }
    redacted.push_str(text.get(shown_to..).unwrap_or_default());
    redacted
}

#[cfg(test)]
mod tests;
