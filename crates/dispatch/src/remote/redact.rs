//! What a service says of a failure may repeat the secrets it was sent. They are taken out before anybody keeps it.
//!
//! Only failures: what an activity answers is data, and its own. Knows nothing of where secrets are from.

use serde_json::Value;

use crate::transport::{Answer, Failure};

/// What stands where a secret was.
const TAKEN_OUT: &str = "[secret]";
/// Shorter ones are in any text.
const BYTES_MIN: usize = 4;

/// Values that were sent with one call.
#[derive(Default)]
pub(super) struct Sent(Vec<String>);

impl Sent {
    /// One more. Services that repeat what they were sent may do so as JSON.
    pub(super) fn add(&mut self, secret: &str) {
        let escaped = Value::from(secret).to_string();
        // Without the quotes around it.
        let escaped = escaped.get(1..escaped.len() - 1).unwrap_or_default();
        for form in [secret, escaped] {
            if form.len() >= BYTES_MIN && !self.0.iter().any(|known| known == form) {
                self.0.push(form.to_owned());
            }
        }
        // What is part of another is looked for after it.
        self.0.sort_by_key(|form| std::cmp::Reverse(form.len()));
    }

    /// The answer without them, if it is a failure.
    pub(super) fn taken_out_of(&self, answer: Answer) -> Answer {
        match answer {
            Answer::Failed(failure) => Answer::Failed(self.taken_out(failure)),
            completed => completed,
        }
    }

    /// The failure without them. Codes that are not the service's own words stay as they are: others match on them.
    pub(super) fn taken_out(&self, mut failure: Failure) -> Failure {
        let told = failure.status.as_deref().is_some_and(|status| status.contains(' '));
        for secret in &self.0 {
            take_out(&mut failure.message, secret);
            if told {
                take_out(&mut failure.code, secret);
            }
        }
        failure
    }
}

/// Also of a beginning at the very end: texts are cut.
fn take_out(text: &mut String, secret: &str) {
    if text.contains(secret) {
        *text = text.replace(secret, TAKEN_OUT);
    }
    let mut beginnings = (BYTES_MIN..secret.len()).rev().filter_map(|bytes| secret.get(..bytes));
    if let Some(beginning) = beginnings.find(|beginning| text.ends_with(beginning)) {
        text.truncate(text.len() - beginning.len());
        text.push_str(TAKEN_OUT);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(secrets: &[&str], failure: Failure) -> (String, String) {
        let mut sent = Sent::default();
        secrets.iter().for_each(|secret| sent.add(secret));
        let Failure { code, message, .. } = sent.taken_out(failure);
        (code, message)
    }

    #[test]
    fn secrets_are_taken_out_of_the_words_of_a_service() {
        let told = Failure::for_good("NO_hunter2", "abc: hunter2hunter2").with_status("400 INVALID_ARGUMENT");
        let expected = ("NO_[secret]".to_owned(), "abc: [secret][secret]".to_owned());
        assert_eq!(shown(&["hunter2", "abc", ""], told), expected);
    }

    #[test]
    fn what_is_escaped_cut_or_part_of_another_secret_is_taken_out_too() {
        let message = |secrets: &[&str], message: &str| shown(secrets, Failure::for_good("X", message)).1;
        assert_eq!(message(&["a\"b\nc"], r#"got {"key":"a\"b\nc"}"#), r#"got {"key":"[secret]"}"#);
        assert_eq!(message(&["quote\""], r#"got {"key":"quote\""}"#), r#"got {"key":"[secret]"}"#);
        assert_eq!(message(&["hunter2-and-more"], "got hunter2-an"), "got [secret]");
        assert_eq!(message(&["abcd", "abcdefgh"], "got abcdefgh and abcd"), "got [secret] and [secret]");
    }

    #[test]
    fn our_own_codes_stay_what_others_match_on() {
        let own = Failure::retryable("AttemptTimeout", "no answer in Time");
        assert_eq!(shown(&["Time"], own), ("AttemptTimeout".to_owned(), "no answer in [secret]".to_owned()));
    }
}
