//! Who may own a shard, and how long an owner may believe it does.
//!
//! No two nodes compare clocks. An owner raises the heartbeat in the shard's head with every commit and stops itself when its last
//! confirmed one is older than the lease, on its own clock. A challenger takes the shard only when it has watched the same token and the
//! same heartbeat stand still for longer than that, on its own. Even if both were wrong the head's version would stop the stale one:
//! the lease saves work, the fence saves data.

use std::time::Duration;

use abide_store::tables::heads::Head;

/// A node's own clock: time since it started, never turned back. Means nothing on another node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Monotonic(pub Duration);

impl Monotonic {
    fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

/// How long a lease lasts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LeaseTimes {
    /// An owner that could not confirm itself for this long has lost the shard.
    pub ttl: Duration,
    /// What a challenger waits beyond that, for clocks that run at different speeds and for a commit on its way.
    pub margin: Duration,
}

impl Default for LeaseTimes {
    fn default() -> Self {
        Self { ttl: Duration::from_secs(15), margin: Duration::from_secs(5) }
    }
}

/// What an owner should do now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// Work.
    Firm,
    /// Commit something, if only the head: a third of the lease is gone.
    Renew,
    /// Stop: another node may have the shard.
    Over,
}

/// An owner's belief that it owns a shard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ownership {
    times: LeaseTimes,
    confirmed: Monotonic,
}

impl Ownership {
    /// From the commit that took the shard. `sent` is when it was sent, not when it was answered: a challenger may have seen it at once.
    pub fn new(times: LeaseTimes, sent: Monotonic) -> Self {
        Self { times, confirmed: sent }
    }

    /// Another commit of this owner was acknowledged.
    pub fn confirm(&mut self, sent: Monotonic) {
        self.confirmed = self.confirmed.max(sent);
    }

    /// When to look at [`Self::standing`] again.
    pub fn wake(&self) -> Monotonic {
        Monotonic(self.confirmed.0.saturating_add(self.times.ttl / 3))
    }

    /// Where the owner stands.
    pub fn standing(&self, now: Monotonic) -> Standing {
        let age = now.since(self.confirmed);
        if age >= self.times.ttl {
            Standing::Over
        } else if age >= self.times.ttl / 3 {
            Standing::Renew
        } else {
            Standing::Firm
        }
    }
}

/// What a challenger may do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Claim {
    /// Look again at this moment, not before.
    Wait(Monotonic),
    /// Take the shard with this token, expecting the head exactly as it was last seen.
    Take {
        /// One above every token the shard has had.
        fencing_token: u64,
    },
}

/// A challenger's view of a shard it does not own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Watch {
    times: LeaseTimes,
    seen: Option<Seen>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Seen {
    fencing_token: u64,
    heartbeat: u64,
    since: Monotonic,
}

impl Watch {
    /// Nothing seen yet.
    pub fn new(times: LeaseTimes) -> Self {
        Self { times, seen: None }
    }

    /// What the head just read allows. `alone` if no other process can use the store: then there is nobody to wait for.
    pub fn observe(&mut self, head: Option<&Head>, alone: bool, now: Monotonic) -> Claim {
        let Some(head) = head else { return Claim::Take { fencing_token: 1 } };
        let Some(next) = head.fencing_token.checked_add(1) else {
            // No token above this one can be given: the shard stays as it is for ever. It takes 2^64 changes of owner to get here.
            return Claim::Wait(Monotonic(Duration::MAX));
        };
        if alone {
            return Claim::Take { fencing_token: next };
        }
        let still = self
            .seen
            .filter(|seen| (seen.fencing_token, seen.heartbeat) == (head.fencing_token, head.heartbeat));
        let since = still.map_or(now, |seen| seen.since);
        self.seen = Some(Seen { fencing_token: head.fencing_token, heartbeat: head.heartbeat, since });
        let patience = self.times.ttl.saturating_add(self.times.margin);
        if now.since(since) >= patience {
            Claim::Take { fencing_token: next }
        } else {
            Claim::Wait(Monotonic(since.0.saturating_add(patience)))
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

    fn head(fencing_token: u64, heartbeat: u64) -> Head {
        Head { owner: "n".to_owned(), fencing_token, heartbeat, last_commit: CommitId(1), last_sequence: 0 }
    }

    #[test]
    fn a_shard_that_nobody_ever_owned_is_taken_at_once() {
        let mut watch = Watch::new(LeaseTimes::default());
        assert_eq!(watch.observe(None, false, at(0)), Claim::Take { fencing_token: 1 });
    }

    #[test]
    fn a_silent_owner_is_replaced_after_ttl_and_margin_and_not_before() {
        let mut watch = Watch::new(LeaseTimes::default());
        assert_eq!(watch.observe(Some(&head(3, 9)), false, at(100)), Claim::Wait(at(120)));
        assert_eq!(watch.observe(Some(&head(3, 9)), false, at(119)), Claim::Wait(at(120)));
        assert_eq!(watch.observe(Some(&head(3, 9)), false, at(120)), Claim::Take { fencing_token: 4 });
    }

    #[test]
    fn every_sign_of_life_starts_the_wait_anew() {
        let mut watch = Watch::new(LeaseTimes::default());
        watch.observe(Some(&head(3, 9)), false, at(0));
        assert_eq!(watch.observe(Some(&head(3, 10)), false, at(19)), Claim::Wait(at(39)));
        assert_eq!(
            watch.observe(Some(&head(4, 10)), false, at(38)),
            Claim::Wait(at(58)),
            "another owner took it"
        );
    }

    #[test]
    fn where_no_other_process_can_be_there_is_nobody_to_wait_for() {
        let mut watch = Watch::new(LeaseTimes::default());
        assert_eq!(watch.observe(Some(&head(3, 9)), true, at(0)), Claim::Take { fencing_token: 4 });
    }

    #[test]
    fn an_owner_renews_in_time_and_stops_at_the_end_of_its_lease() {
        let mut ownership = Ownership::new(LeaseTimes::default(), at(0));
        assert_eq!(ownership.standing(at(4)), Standing::Firm);
        assert_eq!(ownership.standing(at(5)), Standing::Renew);
        assert_eq!(ownership.standing(at(15)), Standing::Over);
        ownership.confirm(at(10));
        ownership.confirm(at(6));
        assert_eq!(
            ownership.standing(at(14)),
            Standing::Firm,
            "an answer that comes late does not turn time back"
        );
        assert_eq!(ownership.standing(at(25)), Standing::Over);
    }

    proptest! {
        /// Clocks that differ by any offset, an owner that stalls at any moment: by the time a challenger takes the shard the owner has
        /// stopped, as long as neither clock runs faster than the other by more than the margin allows.
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
            let mut watch = Watch::new(LeaseTimes::default());
            let mut now = 0;
            for look in looks {
                now += look;
                let last = sent.iter().rposition(|sent| *sent <= now).unwrap_or(0);
                let ownership = Ownership::new(LeaseTimes::default(), ms(sent[last]));
                let claim = watch.observe(Some(&head(1, last as u64)), false, ms(now + offset));
                if matches!(claim, Claim::Take { .. }) {
                    prop_assert_eq!(ownership.standing(ms(now)), Standing::Over);
                    break;
                }
            }
        }
    }
}
