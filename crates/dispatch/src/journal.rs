//! The journal of one call: which deliveries there may have been, and what is known of them.
//!
//! ```text
//!             send                    ack
//!  Pending ─────────► Sent ─────────────────────► Acked
//!     │                │ ▲ │ fail for good
//!     │   may be tried │ │ └────────────────────► FailedFinal
//!     │          again ▼ │ send, attempt + 1          ▲
//!     │           FailedRetryable ────────────────────┤ deadline passed, cancelled, poison, or a failure that was held
//!     └───────────────────────────────────────────────┘ deadline passed, cancelled, or it cannot be sent as it is
//! ```
//! Each state is a type of its own and a transition takes the old one away, so a transition that is not drawn cannot be written. A record
//! says *may have been sent* before the wire is touched: after a crash deliveries may be counted that never were, never the other way round.
//! Where a stored record stands is restored by [`Open::restore`]; ends are made by transitions alone:
//!
//! ```compile_fail,E0599
//! // Promised is not answered.
//! abide_dispatch::journal::Pending::new(0, None).ack(1);
//! ```
//! ```compile_fail,E0639
//! # let record = abide_dispatch::journal::Pending::new(0, None).cancel(1).record;
//! abide_dispatch::journal::Acked { record, settled_at: 1 };
//! ```
//!
//! Decides nothing about retries; whoever advances the workflow does, and asks for another delivery of the same record.

/// What all states of a record have. Times are milliseconds of UTC since 1970.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    /// Possible deliveries less one: what the receiver is told.
    pub attempt: u32,
    /// Deliveries in a row that nobody answered.
    pub unanswered: u32,
    /// A delivery may have run of which no answer is known: whoever can be asked is asked before there is another.
    pub may_have_run: bool,
    /// The last delivery surely never left, so its number is used again.
    pub unsent: bool,
    /// When the call was promised.
    pub created_at: i64,
    /// When the whole call is given up, retries included, if ever.
    pub deadline_at: Option<i64>,
}

/// Deliveries in a row that may go unanswered before the record is set aside as poison: whatever it is sent to may be dying of it.
pub const UNANSWERED_MAX: u32 = 5;

/// Promised, surely not sent.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Pending {
    /// The call.
    pub record: Record,
}

/// May have been sent; no answer is known.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Sent {
    /// The call.
    pub record: Record,
    /// The sender's fencing token: one that is no longer current tells an orphan.
    pub fencing_token: u64,
    /// When.
    pub sent_at: i64,
    /// When this delivery is given up.
    pub attempt_deadline_at: i64,
}

/// The last delivery failed or is unaccounted for; there may be another.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct FailedRetryable {
    /// The call.
    pub record: Record,
    /// Why.
    pub reason: String,
}

/// Answered with success, and the answer is committed.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Acked {
    /// The call.
    pub record: Record,
    /// When.
    pub settled_at: i64,
}

/// Failed for good.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct FailedFinal {
    /// The call.
    pub record: Record,
    /// Why.
    pub reason: FinalReason,
    /// When.
    pub settled_at: i64,
}

/// Why a call failed for good.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FinalReason {
    /// The last allowed delivery failed.
    RetryExhausted,
    /// The answer says that trying again cannot help.
    NonRetryable,
    /// The deadline passed before it could be sent, or before it was answered.
    DeadlineExpired,
    /// Nobody waits for it any more.
    Cancelled,
    /// Too many deliveries in a row went unanswered.
    Poison,
}

/// What a failure means that no other delivery follows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Another delivery might have helped, and none is allowed any more.
    RetryExhausted,
    /// None can help.
    NonRetryable,
}

impl From<Verdict> for FinalReason {
    fn from(verdict: Verdict) -> Self {
        match verdict {
            Verdict::RetryExhausted => Self::RetryExhausted,
            Verdict::NonRetryable => Self::NonRetryable,
        }
    }
}

impl FinalReason {
    /// The word that people and other programs read.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::RetryExhausted => "retry_exhausted",
            Self::NonRetryable => "non_retryable",
            Self::DeadlineExpired => "deadline_expired",
            Self::Cancelled => "cancelled",
            Self::Poison => "poison",
        }
    }
}

/// A call that is not settled.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Open {
    /// Promised, surely not sent.
    Pending(Pending),
    /// May have been sent; no answer is known.
    Sent(Sent),
    /// The last delivery failed or is unaccounted for; there may be another.
    FailedRetryable(FailedRetryable),
}

/// Where a stored record stands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Stage {
    /// Promised, surely not sent.
    Pending,
    /// May have been sent.
    Sent {
        /// By whom.
        fencing_token: u64,
        /// When.
        sent_at: i64,
        /// What the delivery may take, in milliseconds.
        attempt_timeout_ms: u64,
    },
    /// The last delivery failed or is unaccounted for.
    FailedRetryable {
        /// Why.
        reason: String,
    },
}

impl Open {
    /// A call as it was stored. Only what is not settled is: nothing leads from here to an end but a transition.
    pub fn restore(record: Record, stage: Stage) -> Self {
        match stage {
            Stage::Pending => Self::Pending(Pending { record }),
            Stage::FailedRetryable { reason } => Self::FailedRetryable(FailedRetryable { record, reason }),
            Stage::Sent { fencing_token, sent_at, attempt_timeout_ms } => {
                let attempt_deadline_at = limit(&record, sent_at, attempt_timeout_ms);
                Self::Sent(Sent { record, fencing_token, sent_at, attempt_deadline_at })
            }
        }
    }

    /// The call.
    pub fn record(&self) -> &Record {
        match self {
            Self::Pending(Pending { record })
            | Self::Sent(Sent { record, .. })
            | Self::FailedRetryable(FailedRetryable { record, .. }) => record,
        }
    }

    /// The next delivery, or the end if there can be none. A delivery that may be under way is given back as it is.
    pub fn send(self, sending: Sending) -> Result<Sent, FailedFinal> {
        match self {
            Self::Pending(pending) => pending.send(sending),
            Self::FailedRetryable(failed) => failed.send(sending),
            Self::Sent(sent) => Ok(sent),
        }
    }

    /// No other delivery follows the failure that was told. Of what was never sent nothing was used up: it cannot be sent as it is.
    pub fn fail_final(self, verdict: Verdict, at: i64) -> FailedFinal {
        match self {
            Self::Pending(pending) => pending.refuse(at),
            Self::FailedRetryable(failed) => failed.give_up(verdict, at),
            Self::Sent(sent) => sent.fail_final(verdict, at),
        }
    }

    /// The deadline has passed. What may be under way is unaccounted for from here on.
    pub fn expire(self, at: i64) -> FailedFinal {
        match self {
            Self::Pending(pending) => pending.expire(at),
            Self::FailedRetryable(failed) => failed.expire(at),
            Self::Sent(sent) => sent.orphaned().expire(at),
        }
    }

    /// Nobody waits for it any more. What may be under way is unaccounted for from here on.
    pub fn cancel(self, at: i64) -> FailedFinal {
        match self {
            Self::Pending(pending) => pending.cancel(at),
            Self::FailedRetryable(failed) => failed.cancel(at),
            Self::Sent(sent) => sent.orphaned().cancel(at),
        }
    }
}

/// Who sends, and until when this delivery may take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sending {
    /// The sender's fencing token.
    pub fencing_token: u64,
    /// Now.
    pub at: i64,
    /// This delivery's own limit, in milliseconds.
    pub attempt_timeout_ms: u64,
}

impl Pending {
    /// A call that has just been decided upon.
    pub fn new(created_at: i64, deadline_at: Option<i64>) -> Self {
        let record =
            Record { attempt: 0, unanswered: 0, may_have_run: false, unsent: false, created_at, deadline_at };
        Self { record }
    }

    /// The first delivery, or the end if there is no time left for one.
    pub fn send(self, sending: Sending) -> Result<Sent, FailedFinal> {
        deliver(self.record, sending)
    }

    /// Nobody waits for it any more.
    pub fn cancel(self, at: i64) -> FailedFinal {
        self.record.end(FinalReason::Cancelled, at)
    }

    /// The deadline passed before it was sent.
    pub fn expire(self, at: i64) -> FailedFinal {
        self.record.end(FinalReason::DeadlineExpired, at)
    }

    /// It cannot be sent as it is, and never will.
    pub fn refuse(self, at: i64) -> FailedFinal {
        self.record.end(FinalReason::NonRetryable, at)
    }
}

impl Sent {
    /// Answered with success.
    pub fn ack(self, at: i64) -> Acked {
        Acked { record: self.record, settled_at: at }
    }

    /// Failed, and no other delivery follows.
    pub fn fail_final(self, verdict: Verdict, at: i64) -> FailedFinal {
        self.record.end(verdict.into(), at)
    }

    /// Answered with a failure that another delivery may cure. Whoever answers knows what became of earlier deliveries.
    pub fn fail_retryable(mut self, reason: String) -> FailedRetryable {
        self.record.unanswered = 0;
        self.record.may_have_run = false;
        FailedRetryable { record: self.record, reason }
    }

    /// Failed, and whether the activity ran is unknown: the answer did not come, or only from whoever was asked about earlier deliveries.
    pub fn fail_unknown(mut self, reason: String) -> FailedRetryable {
        self.record.unanswered = 0;
        self.record.may_have_run = true;
        FailedRetryable { record: self.record, reason }
    }

    /// It never left, and whoever should have sent it is alive to say so. What is unknown of earlier deliveries stays unknown.
    pub fn not_sent(mut self, reason: String) -> FailedRetryable {
        self.record.unanswered = 0;
        self.record.unsent = true;
        FailedRetryable { record: self.record, reason }
    }

    /// It never left, and will not: its sender goes down. That says nothing of earlier deliveries, nor of what they did to who sent them.
    pub fn withdrawn(mut self) -> FailedRetryable {
        self.record.unsent = true;
        FailedRetryable { record: self.record, reason: "the server went down before it was sent".to_owned() }
    }

    /// Whether nobody can be waiting for the answer any more: the sender has lost its shard, or has given this delivery up.
    pub fn is_orphan(&self, current_token: u64, now: i64) -> bool {
        self.fencing_token != current_token || now >= self.attempt_deadline_at
    }

    /// The answer will not come. Whether the activity ran is unknown.
    pub fn orphaned(mut self) -> FailedRetryable {
        self.record.unanswered = self.record.unanswered.saturating_add(1);
        self.record.may_have_run = true;
        FailedRetryable { record: self.record, reason: "outcome_unknown".to_owned() }
    }
}

impl FailedRetryable {
    /// Another delivery of the same record, or the end if there is no time left, or nobody ever answers.
    pub fn send(self, sending: Sending) -> Result<Sent, FailedFinal> {
        if self.record.unanswered >= UNANSWERED_MAX {
            return Err(self.poison(sending.at));
        }
        let mut sent = deliver(self.record, sending)?;
        if !std::mem::take(&mut sent.record.unsent) {
            sent.record.attempt = sent.record.attempt.saturating_add(1);
        }
        Ok(sent)
    }

    /// Nobody waits for it any more.
    pub fn cancel(self, at: i64) -> FailedFinal {
        self.record.end(FinalReason::Cancelled, at)
    }

    /// The deadline passed before there was another delivery.
    pub fn expire(self, at: i64) -> FailedFinal {
        self.record.end(FinalReason::DeadlineExpired, at)
    }

    /// Too many deliveries in a row went unanswered.
    pub fn poison(self, at: i64) -> FailedFinal {
        self.record.end(FinalReason::Poison, at)
    }

    /// Whoever held the failure has decided that no other delivery follows.
    pub fn give_up(self, verdict: Verdict, at: i64) -> FailedFinal {
        self.record.end(verdict.into(), at)
    }
}

impl Record {
    /// Deliveries there may have been; `pending` says that none was ever begun.
    pub fn deliveries(&self, pending: bool) -> u32 {
        self.attempt.saturating_add(u32::from(!pending && !self.unsent))
    }

    fn end(self, reason: FinalReason, at: i64) -> FailedFinal {
        FailedFinal { record: self, reason, settled_at: at }
    }
}

/// Expired before it is sent is final and not sent. A delivery never outlives the call.
fn deliver(record: Record, sending: Sending) -> Result<Sent, FailedFinal> {
    if record.deadline_at.is_some_and(|deadline| deadline <= sending.at) {
        return Err(record.end(FinalReason::DeadlineExpired, sending.at));
    }
    let attempt_deadline_at = limit(&record, sending.at, sending.attempt_timeout_ms);
    Ok(Sent { record, fencing_token: sending.fencing_token, sent_at: sending.at, attempt_deadline_at })
}

fn limit(record: &Record, sent_at: i64, attempt_timeout_ms: u64) -> i64 {
    let timeout = i64::try_from(attempt_timeout_ms).unwrap_or(i64::MAX);
    let limit = sent_at.saturating_add(timeout);
    record.deadline_at.map_or(limit, |deadline| deadline.min(limit))
}

#[cfg(test)]
mod tests;
