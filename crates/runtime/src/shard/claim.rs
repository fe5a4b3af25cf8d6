//! Getting the shard, keeping it, and giving it up. The commit that is out, and what its answers mean.

use std::sync::Arc;

use abide_store::rows::{Batch, CommitOutcome, Row, StoreError, Version};
use abide_store::tables::heads::{self, CommitId, Head};
use abide_store::tables::{decode, encode};

use super::commits::{InFlight, Waiting};
use super::{Shard, back_off, later, planted};
use crate::event::{Effect, Notice, Stopped};
use crate::lease::{Claim, LeaseTimes, Monotonic, Ownership, Watch};

/// Where the shard stands with its owner.
#[derive(Debug)]
pub(super) enum Phase {
    /// The head is to be looked at, then or at once.
    Watching(Watch, Option<Monotonic>),
    /// The head is being read.
    Reading(Watch),
    /// The commit that takes the shard is out.
    Taking(Watch, Owned),
    /// Owned; what was under way is being found.
    Recovering(Owned),
    /// Owned, and at work.
    Working(Owned),
    /// Owned; nothing new is taken.
    Draining(Owned),
    /// Not here any more.
    Stopped,
}

/// What an owner knows of the head.
#[derive(Clone, Debug)]
pub(super) struct Owned {
    pub(super) fencing_token: u64,
    pub(super) heartbeat: u64,
    pub(super) version: Option<Version>,
    pub(super) ownership: Ownership,
}

impl Phase {
    pub(super) fn new(times: LeaseTimes) -> Self {
        Self::Watching(Watch::new(times), None)
    }

    pub(super) fn wake(&self, alone: bool) -> Option<Monotonic> {
        match self {
            Self::Watching(_, at) => *at,
            Self::Recovering(owned) | Self::Working(owned) | Self::Draining(owned) if !alone => {
                Some(owned.ownership.wake())
            }
            _ => None,
        }
    }

    pub(super) fn owned(&self) -> Option<&Owned> {
        match self {
            Self::Taking(_, owned)
            | Self::Recovering(owned)
            | Self::Working(owned)
            | Self::Draining(owned) => Some(owned),
            Self::Watching(..) | Self::Reading(_) | Self::Stopped => None,
        }
    }

    fn owned_mut(&mut self) -> Option<&mut Owned> {
        match self {
            Self::Taking(_, owned)
            | Self::Recovering(owned)
            | Self::Working(owned)
            | Self::Draining(owned) => Some(owned),
            Self::Watching(..) | Self::Reading(_) | Self::Stopped => None,
        }
    }
}

/// How long to wait before looking at a head that could not be read.
const LOOK_AGAIN: std::time::Duration = std::time::Duration::from_millis(500);

impl Shard {
    pub(super) fn fencing_token(&self) -> u64 {
        self.phase.owned().map_or(0, |owned| owned.fencing_token)
    }

    /// Looks at the head when it is time to.
    pub(super) fn keep_claim(&mut self) {
        let Phase::Watching(watch, at) = &self.phase else { return };
        if at.is_none_or(|at| at <= self.now.mono) {
            self.phase = Phase::Reading(watch.clone());
            self.effects.push(Effect::ReadHead);
        }
    }

    pub(super) fn on_head_read(&mut self, result: Result<Option<Row>, StoreError>) {
        if let Phase::Reading(watch) = &self.phase {
            let watch = watch.clone();
            return self.consider(watch, result);
        }
        if self.commits.in_flight.as_ref().is_some_and(|commit| commit.waiting == Waiting::Head) {
            self.learn_outcome(result);
        }
    }

    fn consider(&mut self, mut watch: Watch, result: Result<Option<Row>, StoreError>) {
        let retry = Some(later(self.now.mono, LOOK_AGAIN));
        let row = match result {
            Ok(row) => row,
            Err(StoreError::Unavailable { .. }) => {
                self.phase = Phase::Watching(watch, retry);
                return;
            }
            Err(error @ StoreError::Corrupt { .. }) => return self.stop(Stopped::Broken(error.to_string())),
        };
        let head: Option<Head> = match row.as_ref().map(|row| decode(&row.value)).transpose() {
            Ok(head) => head,
            Err(error) => return self.stop(Stopped::Broken(error.to_string())),
        };
        // An owner that gave the shard up left no name.
        let given_up = head.as_ref().is_some_and(|head| head.owner.is_empty());
        match watch.observe(head.as_ref(), self.config.alone || given_up, self.now.mono) {
            Claim::Wait(at) => self.phase = Phase::Watching(watch, Some(at)),
            Claim::Take { fencing_token } => {
                self.sequence = head.as_ref().map_or(0, |head| head.last_sequence);
                let owned = Owned {
                    fencing_token,
                    heartbeat: 0,
                    version: row.map(|row| row.version),
                    ownership: Ownership::new(self.config.lease, self.now.mono),
                };
                self.phase = Phase::Taking(watch, owned);
                if planted!(self, StaleRecovery) {
                    let calls = abide_store::tables::dispatches::all();
                    self.effects.push(Effect::Scan(crate::event::ScanPurpose::Dispatches, calls));
                }
                self.commits.hurry();
                self.commit_next();
            }
        }
    }

    /// Sends the next commit, if one is wanted and none is out.
    pub(super) fn commit_next(&mut self) {
        let lazy = self.commits.has_lazy();
        self.lazy_since = if lazy { self.lazy_since.or(Some(self.now.mono)) } else { None };
        let waited =
            self.lazy_since.is_some_and(|since| later(since, self.config.lazy_linger) <= self.now.mono);
        let Some((rows, after)) = self.commits.next(waited || lazy && self.commits.is_heavy()) else {
            return;
        };
        self.lazy_since = None;
        let id = self.next_commit_id();
        let Some(owned) = self.phase.owned_mut() else { return };
        owned.heartbeat += 1;
        let released = matches!(&self.phase, Phase::Draining(_)) && self.is_drained_but_for_this();
        let Some(owned) = self.phase.owned() else { return };
        let head = Head {
            owner: if released { String::new() } else { self.config.node.clone() },
            fencing_token: owned.fencing_token,
            heartbeat: owned.heartbeat,
            last_commit: id,
            last_sequence: self.sequence,
        };
        let mut batch = Batch::fenced(heads::key(), owned.version.clone(), encode(&head));
        for (key, value) in rows {
            batch = match value {
                Some(value) => batch.put(key, value),
                None => batch.delete(key),
            };
        }
        let (sent, waiting) = (self.now.mono, Waiting::Answer);
        let batch = Arc::new(batch);
        self.effects.push(Effect::Commit(id, Arc::clone(&batch)));
        self.commits.in_flight = Some(InFlight { id, batch, after, sent, tries: 0, waiting });
    }

    /// Repeats what must be repeated.
    pub(super) fn keep_commit(&mut self) {
        let now = self.now.mono;
        let Some(commit) = &mut self.commits.in_flight else { return };
        match commit.waiting {
            Waiting::Retry(at) if at <= now => {
                commit.waiting = Waiting::Answer;
                commit.sent = now;
                self.effects.push(Effect::Commit(commit.id, Arc::clone(&commit.batch)));
            }
            Waiting::AskAgain(at) if at <= now => {
                commit.waiting = Waiting::Head;
                self.effects.push(Effect::ReadHead);
            }
            _ => {}
        }
    }

    pub(super) fn commit_wake(&self) -> Option<Monotonic> {
        match self.commits.in_flight.as_ref()?.waiting {
            Waiting::Retry(at) | Waiting::AskAgain(at) => Some(at),
            Waiting::Answer | Waiting::Head => None,
        }
    }

    pub(super) fn on_commit_answered(&mut self, id: CommitId, outcome: CommitOutcome) {
        let now = self.now.mono;
        let assumed_done = planted!(self, UnknownAssumedDone);
        let Some(commit) = self.commits.in_flight.as_mut().filter(|commit| commit.id == id) else { return };
        match outcome {
            CommitOutcome::Committed(receipt) => self.committed(receipt.head),
            CommitOutcome::Unavailable { .. } => {
                commit.tries += 1;
                commit.waiting = Waiting::Retry(later(now, back_off(commit.tries)));
            }
            CommitOutcome::Unknown { .. } if assumed_done => self.committed(None),
            // Also when it says that another owner has the shard: an earlier copy of this commit may have arrived after all.
            CommitOutcome::Unknown { .. } | CommitOutcome::Fenced | CommitOutcome::Conflict(_) => {
                commit.waiting = Waiting::Head;
                self.effects.push(Effect::ReadHead);
            }
            CommitOutcome::Refused(error) => self.stop(Stopped::Broken(error.to_string())),
        }
    }

    /// The head says what came of the commit that is out.
    fn learn_outcome(&mut self, result: Result<Option<Row>, StoreError>) {
        let now = self.now.mono;
        let expected = self.phase.owned().and_then(|owned| owned.version.clone());
        let Some(commit) = &mut self.commits.in_flight else { return };
        let row = match result {
            Ok(row) => row,
            Err(StoreError::Unavailable { .. }) => {
                commit.tries += 1;
                commit.waiting = Waiting::AskAgain(later(now, back_off(commit.tries)));
                return;
            }
            Err(error @ StoreError::Corrupt { .. }) => return self.stop(Stopped::Broken(error.to_string())),
        };
        let head: Option<Head> = row.as_ref().and_then(|row| decode(&row.value).ok());
        if head.is_some_and(|head| head.last_commit == commit.id) {
            return self.committed(row.map(|row| row.version));
        }
        if row.map(|row| row.version) == expected {
            commit.tries += 1;
            commit.waiting = Waiting::Retry(later(now, back_off(commit.tries)));
            return;
        }
        match &self.phase {
            Phase::Taking(watch, _) => {
                let watch = watch.clone();
                self.commits = super::Commits::new(self.config.store);
                self.phase = Phase::Watching(watch, Some(later(now, LOOK_AGAIN)));
            }
            _ => self.stop(Stopped::Lost),
        }
    }

    fn committed(&mut self, head: Option<Version>) {
        let Some(commit) = self.commits.settled() else { return };
        if let Some(owned) = self.phase.owned_mut() {
            owned.version = head;
            owned.ownership.confirm(commit.sent);
        }
        if let Phase::Taking(_, owned) = &self.phase {
            let owned = owned.clone();
            let fencing_token = owned.fencing_token;
            self.phase = Phase::Recovering(owned);
            self.tell(Notice::Owned { fencing_token });
            self.begin_recovery();
        }
        for after in commit.after {
            self.follow(after);
        }
    }

    /// Recovery is through: the shard works.
    pub(super) fn begin_work(&mut self) {
        if let Phase::Recovering(owned) = &self.phase {
            self.phase = Phase::Working(owned.clone());
        }
    }

    /// Takes nothing new from now on.
    pub(super) fn drain(&mut self) {
        match &self.phase {
            Phase::Recovering(owned) | Phase::Working(owned) => {
                self.phase = Phase::Draining(owned.clone());
                // The last commit gives the shard up.
                self.commits.hurry();
            }
            Phase::Draining(_) => {}
            _ => self.stop(Stopped::Drained),
        }
    }

    /// Whether the commit about to be made is the last one.
    fn is_drained_but_for_this(&self) -> bool {
        // Nothing more is gathered: whoever sees the shard given up takes it at once, and the rest would be lost.
        self.commits.has_nothing_gathered()
            && self.ready.is_empty()
            && !self.entities_are_ready()
            && self.calls_out() == 0
            && self.waiting == 0
    }

    /// Stops once nothing is under way and the shard is given up.
    pub(super) fn finish_drain(&mut self) {
        if !matches!(self.phase, Phase::Draining(_)) || !self.commits.is_idle() || !self.ready.is_empty() {
            return;
        }
        if self.calls_out() == 0 && self.waiting == 0 && self.posted.is_empty() {
            self.stop(Stopped::Drained);
        }
    }
}
