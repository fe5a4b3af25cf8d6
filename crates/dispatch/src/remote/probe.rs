//! Asking what became of a delivery of which no answer is known, before the work is delivered again.
//!
//! Asking runs nothing. Knows nothing of how a question is sent: it takes a place and its turn like a delivery.

use std::sync::Arc;

use tokio::time::Instant;

use super::activity::Remote;
use super::exchange::Ask;
use crate::status::Code;
use crate::status::reason::IN_PROGRESS;
use crate::transport::{Answer, Call, Failure, Room};

/// What is known of a delivery that nobody heard of again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Probed {
    /// It was done, and this is what came of it.
    Finished(Answer),
    /// Nobody has done it and nobody is at it: it can be delivered again.
    Unknown,
    /// Somebody is at it, and said so in these words.
    InProgress(Failure),
    /// The activity cannot be asked.
    Unsupported,
    /// Nobody answered the question.
    Unanswered(Failure),
}

impl Remote {
    /// The answer of a call that need not be delivered again, or not now.
    pub(super) async fn known(&self, call: &Call, begun: Instant, room: &impl Room) -> Option<Answer> {
        match self.probed(call, begun, room).await {
            Probed::Finished(answer) => Some(answer),
            Probed::InProgress(failure) => Some(Answer::Failed(undelivered(failure))),
            // Who does not answer the question would not answer the delivery.
            Probed::Unanswered(failure) if failure.retryable => Some(Answer::Failed(undelivered(failure))),
            Probed::Unknown | Probed::Unsupported | Probed::Unanswered(_) => None,
        }
    }

    pub(super) async fn probed(&self, call: &Call, begun: Instant, room: &impl Room) -> Probed {
        if !self.declaration().probe {
            return Probed::Unsupported;
        }
        let failure = match self.ask(call, Ask::Probe, begun, room).await {
            Ok(output) => return Probed::Finished(Answer::Completed(Arc::new(output))),
            Err(failure) => failure.with_target(self.target().to_string()),
        };
        // If the answer that was kept is itself such a failure, delivering again brings it to light.
        let told = failure.status.as_deref().and_then(|status| Code::from_name(status.split_once(' ')?.1));
        match told {
            Some(Code::NotFound) => Probed::Unknown,
            Some(Code::Aborted) => Probed::InProgress(Failure { code: IN_PROGRESS.to_owned(), ..failure }),
            Some(Code::Unimplemented) => Probed::Unsupported,
            // Said by whoever stands before the activity, which was not asked.
            Some(Code::Unauthenticated | Code::PermissionDenied) => Probed::Unanswered(failure),
            Some(code) if !code.is_retryable() => Probed::Finished(Answer::Failed(failure)),
            // What was kept cannot be used, and would not be any better if it were asked for again.
            None if failure.status.is_none() && !failure.retryable && !failure.not_sent => {
                Probed::Finished(Answer::Failed(failure))
            }
            _ => Probed::Unanswered(failure),
        }
    }
}

/// What became of the earlier delivery is as unknown as before, and there was no other.
fn undelivered(failure: Failure) -> Failure {
    failure.with_outcome_unknown().with_not_sent()
}
