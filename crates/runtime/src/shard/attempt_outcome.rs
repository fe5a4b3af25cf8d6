//! The outcome of an attempt, as far as it says whether the activity ran. What follows from it is decided elsewhere.

/// The outcome of an attempt, as far as it says whether the activity ran.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum AttemptOutcome {
    /// The activity responded.
    Responded,
    /// The activity may have run or not.
    Unknown,
    /// Nothing was sent.
    NotSent,
    /// Something in front of the activity refused the request and did not let it through.
    Rejected,
}

impl AttemptOutcome {
    pub(super) fn of_failure(failure: &abide_dispatch::CallFailure) -> Self {
        match (failure.not_sent, failure.outcome_unknown) {
            (true, _) => Self::NotSent,
            // Checked before the status: a 503 may come from a proxy that lost the response.
            (false, true) => Self::Unknown,
            (false, false) if failure.is_rejected_before_handler() => Self::Rejected,
            (false, false) => Self::Responded,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use abide_dispatch::CallFailure;

    #[test]
    fn an_attempt_of_unknown_outcome_is_not_rejected_whatever_its_status() {
        for status in ["401", "403", "429 RESOURCE_EXHAUSTED", "503", "503 UNAVAILABLE"] {
            let failure = CallFailure::retryable(status, "").with_status(status);
            assert_eq!(AttemptOutcome::of_failure(&failure), AttemptOutcome::Rejected, "{status}");
            let unknown = failure.with_outcome_unknown();
            assert_eq!(AttemptOutcome::of_failure(&unknown), AttemptOutcome::Unknown, "{status}");
            assert_eq!(
                AttemptOutcome::of_failure(&unknown.with_not_sent()),
                AttemptOutcome::NotSent,
                "{status}"
            );
        }
        assert_eq!(
            AttemptOutcome::of_failure(&CallFailure::retryable("ABORTED", "").with_status("409 ABORTED")),
            AttemptOutcome::Responded
        );
    }
}
