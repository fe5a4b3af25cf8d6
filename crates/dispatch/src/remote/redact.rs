//! What a service says of a failure may repeat the secrets it was sent. They are taken out before anybody keeps it.
//!
//! Only failures: what an activity answers is data, and its own. Knows nothing of where secrets are from.

use crate::transport::{Answer, Failure};

/// What stands where a secret was.
const TAKEN_OUT: &str = "[secret]";
/// Shorter ones are in any text.
const BYTES_MIN: usize = 4;

/// Values that were sent with one call.
#[derive(Default)]
pub(super) struct Sent(Vec<String>);

impl Sent {
    /// One more.
    pub(super) fn add(&mut self, secret: &str) {
        if secret.len() >= BYTES_MIN {
            self.0.push(secret.to_owned());
        }
    }

    /// The answer without them, if it is a failure.
    pub(super) fn taken_out_of(&self, answer: Answer) -> Answer {
        match answer {
            Answer::Failed(failure) => Answer::Failed(self.taken_out(failure)),
            completed => completed,
        }
    }

    /// The failure without them.
    pub(super) fn taken_out(&self, mut failure: Failure) -> Failure {
        for secret in &self.0 {
            let texts = [Some(&mut failure.code), Some(&mut failure.message), failure.status.as_mut()];
            for text in texts.into_iter().flatten().filter(|text| text.contains(secret)) {
                *text = text.replace(secret, TAKEN_OUT);
            }
        }
        failure
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_taken_out_of_every_text_of_a_failure() {
        let mut sent = Sent::default();
        ["hunter2", "abc", ""].into_iter().for_each(|secret| sent.add(secret));
        let failure = Failure::for_good("No hunter2", "abc: hunter2hunter2").with_status("400 hunter2");
        let shown = sent.taken_out(failure);
        assert_eq!((shown.code.as_str(), shown.message.as_str()), ("No [secret]", "abc: [secret][secret]"));
        assert_eq!(shown.status.as_deref(), Some("400 [secret]"));
    }
}
