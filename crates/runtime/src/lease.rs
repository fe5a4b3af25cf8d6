//! Decides when a node may take over a shard, and how long an owner may believe that it owns one.
//!
//! No two nodes compare clocks. An owner raises the heartbeat in the shard's head with every commit. It stops itself
//! when its last confirmed heartbeat is older than the lease, on its own clock. A challenger takes the shard over only
//! after it has watched the same token and the same heartbeat stand still for longer than that, on its own clock. If
//! both were wrong, the head's version would still stop the stale owner: the lease saves work, the fence saves data.

use std::time::Duration;

use abide_store::tables::heads::HeadRow;

/// A node's monotonic clock: the time since it started. Never goes back, and means nothing on another node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Monotonic(pub Duration);

impl Monotonic {
    fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

/// The durations of a lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LeaseTimes {
    /// An owner that could not confirm its ownership for this long has lost the shard.
    pub ttl: Duration,
    /// The time a challenger waits beyond that, for clocks of different speed and for a commit on its way.
    pub margin: Duration,
}

impl Default for LeaseTimes {
    fn default() -> Self {
        Self { ttl: Duration::from_secs(15), margin: Duration::from_secs(5) }
    }
}

/// An owner's lease, and so what the owner should do now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LeaseStatus {
    /// Go on working.
    Valid,
    /// Commit something, if only the head: a third of the lease has passed.
    RenewalDue,
    /// Stop: another node may own the shard.
    Expired,
}

/// An owner's lease: how long it may believe that it owns a shard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lease {
    times: LeaseTimes,
    confirmed_at: Monotonic,
}

impl Lease {
    /// Starts with the commit that is to take the shard. `sent` is when that commit is sent, not when it is
    /// acknowledged: a challenger may see it at once.
    pub fn new(times: LeaseTimes, sent: Monotonic) -> Self {
        Self { times, confirmed_at: sent }
    }

    /// A commit of this owner was acknowledged; every commit writes the head and so renews the lease.
    pub fn confirm(&mut self, sent: Monotonic) {
        self.confirmed_at = self.confirmed_at.max(sent);
    }

    /// The time at which [`Self::status`] should be checked again.
    pub fn next_check_at(&self) -> Monotonic {
        Monotonic(self.confirmed_at.0.saturating_add(self.times.ttl / 3))
    }

    /// The lease at this time. Not asked for if no other process can use the store.
    pub fn status(&self, now: Monotonic) -> LeaseStatus {
        let age = now.since(self.confirmed_at);
        if age >= self.times.ttl {
            LeaseStatus::Expired
        } else if age >= self.times.ttl / 3 {
            LeaseStatus::RenewalDue
        } else {
            LeaseStatus::Valid
        }
    }
}

/// A challenger's decision.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TakeoverDecision {
    /// Read the head again at this time, not before.
    Wait(Monotonic),
    /// Take the shard with this token, and expect the head exactly as it was last read.
    TakeOver {
        /// One above every token the shard has had.
        fencing_token: u64,
    },
}

/// A challenger's view of a shard it does not own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OwnerWatch {
    times: LeaseTimes,
    last_observed: Option<ObservedHead>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct ObservedHead {
    fencing_token: u64,
    heartbeat: u64,
    unchanged_since: Monotonic,
}

impl OwnerWatch {
    pub fn new(times: LeaseTimes) -> Self {
        Self { times, last_observed: None }
    }

    /// Decides by the head just read, and remembers it. `exclusive` means that no owner can be alive, because no other
    /// process can use the store or the last owner released the shard: then there is nothing to wait for.
    pub fn observe(&mut self, head: Option<&HeadRow>, exclusive: bool, now: Monotonic) -> TakeoverDecision {
        let Some(head) = head else { return TakeoverDecision::TakeOver { fencing_token: 1 } };
        let Some(next) = head.fencing_token.checked_add(1) else {
            // There is no higher token: the shard stays as it is. It takes 2^64 changes of owner to get here.
            return TakeoverDecision::Wait(Monotonic(Duration::MAX));
        };
        if exclusive {
            return TakeoverDecision::TakeOver { fencing_token: next };
        }
        let unchanged = self
            .last_observed
            .filter(|last| (last.fencing_token, last.heartbeat) == (head.fencing_token, head.heartbeat));
        let since = unchanged.map_or(now, |last| last.unchanged_since);
        self.last_observed = Some(ObservedHead {
            fencing_token: head.fencing_token,
            heartbeat: head.heartbeat,
            unchanged_since: since,
        });
        let patience = self.times.ttl.saturating_add(self.times.margin);
        if now.since(since) >= patience {
            TakeoverDecision::TakeOver { fencing_token: next }
        } else {
            TakeoverDecision::Wait(Monotonic(since.0.saturating_add(patience)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use abide_store::tables::heads::CommitId;
    use proptest::prelude::*;

    fn at(seconds: u64) -> Monotonic {
        Monotonic(Duration::from_secs(seconds))
    }

    fn head(fencing_token: u64, heartbeat: u64) -> HeadRow {
        HeadRow {
            owner: Some("n".to_owned()),
            fencing_token,
            heartbeat,
            last_commit: CommitId(1),
            last_sequence: abide_ids::Sequence::ZERO,
            retention_ms: 0,
            unclean_claims: 0,
            marked_instance: None,
        }
    }

    #[test]
    fn a_shard_without_a_head_is_taken_at_once() {
        let mut watch = OwnerWatch::new(LeaseTimes::default());
        assert_eq!(watch.observe(None, false, at(0)), TakeoverDecision::TakeOver { fencing_token: 1 });
    }

    #[test]
    fn a_silent_owner_is_replaced_after_ttl_and_margin_and_not_before() {
        let mut watch = OwnerWatch::new(LeaseTimes::default());
        assert_eq!(watch.observe(Some(&head(3, 9)), false, at(100)), TakeoverDecision::Wait(at(120)));
        assert_eq!(watch.observe(Some(&head(3, 9)), false, at(119)), TakeoverDecision::Wait(at(120)));
        assert_eq!(
            watch.observe(Some(&head(3, 9)), false, at(120)),
            TakeoverDecision::TakeOver { fencing_token: 4 }
        );
    }

    #[test]
    fn every_heartbeat_restarts_the_wait() {
        let mut watch = OwnerWatch::new(LeaseTimes::default());
        watch.observe(Some(&head(3, 9)), false, at(0));
        assert_eq!(watch.observe(Some(&head(3, 10)), false, at(19)), TakeoverDecision::Wait(at(39)));
        assert_eq!(
            watch.observe(Some(&head(4, 10)), false, at(38)),
            TakeoverDecision::Wait(at(58)),
            "another owner took it"
        );
    }

    #[test]
    fn an_exclusive_store_needs_no_wait() {
        let mut watch = OwnerWatch::new(LeaseTimes::default());
        assert_eq!(
            watch.observe(Some(&head(3, 9)), true, at(0)),
            TakeoverDecision::TakeOver { fencing_token: 4 }
        );
    }

    #[test]
    fn an_owner_renews_in_time_and_stops_at_the_end_of_its_lease() {
        let mut ownership = Lease::new(LeaseTimes::default(), at(0));
        assert_eq!(ownership.status(at(4)), LeaseStatus::Valid);
        assert_eq!(ownership.status(at(5)), LeaseStatus::RenewalDue);
        assert_eq!(ownership.status(at(15)), LeaseStatus::Expired);
        ownership.confirm(at(10));
        ownership.confirm(at(6));
        assert_eq!(
            ownership.status(at(14)),
            LeaseStatus::Valid,
            "a late acknowledgement does not turn time back"
        );
        assert_eq!(ownership.status(at(25)), LeaseStatus::Expired);
    }

    proptest! {
        /// The clocks differ by any offset, and the owner stalls at any time. When a challenger takes the shard, the
        /// owner has stopped, as long as neither clock runs faster than the other by more than the margin allows.
        #[test]
        fn no_challenger_takes_a_shard_from_an_owner_that_still_works(
            offset in 0..1_000_000u64,
            heartbeats in prop::collection::vec(1..14_000u64, 0..20),
            looks in prop::collection::vec(1..9_000u64, 1..200),
        ) {
            let ms = |ms: u64| Monotonic(Duration::from_millis(ms));
            let mut sent = vec![0];
            for pause in heartbeats {
                sent.push(sent.last().unwrap() + pause);
            }
            let mut watch = OwnerWatch::new(LeaseTimes::default());
            let mut now = 0;
            for look in looks {
                now += look;
                let last = sent.iter().rposition(|sent| *sent <= now).unwrap_or(0);
                let ownership = Lease::new(LeaseTimes::default(), ms(sent[last]));
                let decision = watch.observe(Some(&head(1, last as u64)), false, ms(now + offset));
                if matches!(decision, TakeoverDecision::TakeOver { .. }) {
                    prop_assert_eq!(ownership.status(ms(now)), LeaseStatus::Expired);
                    break;
                }
            }
        }
    }
}
