//! Sends the commits of a shard one at a time, resolves their outcomes, and runs the actions that wait for them.
//!
//! Every commit carries the head row of the shard, fenced by the version this owner last saw. So a shard that has lost
//! its ownership cannot write. A commit of unknown outcome is resolved by reading the head: the head names the last
//! commit that happened.
//!
//! The pipeline does not know what the rows of a commit mean. [`commit_queue`](super::commit_queue) collects them.

use std::sync::Arc;

use abide_store::rows::{Batch, CommitOutcome, Row, RowVersion, StoreError};
use abide_store::tables::heads::{self, CommitId, HeadRow};
use abide_store::tables::{decode, encode};

use super::commit_queue::{CommitQueue, CommitWait, InFlightCommit, OnCommit};
use super::ownership::{HEAD_RETRY_DELAY, OwnershipPhase};
use super::{Shard, backoff, fault_injected, later};
use crate::event::{Effect, OperatorEvent, StopReason};
use crate::lease::Monotonic;

impl Shard {
    /// Sends the next commit, if there is one to send and none is in flight.
    pub(super) fn send_next_commit(&mut self) {
        let lingering = self.commits.is_lingering();
        self.lingering_since = if lingering { self.lingering_since.or(Some(self.now.mono)) } else { None };
        let waited = self
            .lingering_since
            .is_some_and(|since| later(since, self.config.lazy_commit_delay) <= self.now.mono);
        let Some((rows, on_commit)) =
            self.commits.take_next(waited || lingering && self.commits.is_half_full())
        else {
            return;
        };
        self.lingering_since = None;
        let Some(id) = self.next_commit_id() else { return };
        let Some(owned) = self.phase.owned_head_mut() else { return };
        owned.heartbeat += 1;
        let released = matches!(&self.phase, OwnershipPhase::Draining(_)) && self.is_final_drain_commit();
        let Some(owned) = self.phase.owned_head() else { return };
        let head = HeadRow {
            owner: (!released).then(|| self.config.node_name.clone()),
            fencing_token: owned.fencing_token,
            heartbeat: owned.heartbeat,
            last_commit: id,
            last_sequence: self.sequence,
        };
        let mut batch = Batch::fenced(heads::key(), owned.head_version.clone(), encode(&head));
        for (key, value) in rows {
            batch = match value {
                Some(value) => batch.put(key, value),
                None => batch.delete(key),
            };
        }
        let (sent, waiting) = (self.now.mono, CommitWait::Outcome);
        let batch = Arc::new(batch);
        self.effects.push(Effect::Commit(id, Arc::clone(&batch)));
        self.commits.in_flight =
            Some(InFlightCommit { id, batch, on_commit, sent_at: sent, tries: 0, wait: waiting });
    }

    /// The id contains the fencing token: a node that loses the shard and acquires it again must not mistake one of its
    /// old commits for a new one.
    fn next_commit_id(&mut self) -> Option<CommitId> {
        self.commits_sent += 1;
        let ownership = u128::from(self.fencing_token()? & 0xff_ffff) << 40;
        Some(CommitId(u128::from(self.config.incarnation) << 64 | ownership | u128::from(self.commits_sent)))
    }

    /// Repeats a commit that failed, or the read of the head that is to resolve its outcome.
    pub(super) fn drive_commit(&mut self) {
        let now = self.now.mono;
        let Some(commit) = &mut self.commits.in_flight else { return };
        match commit.wait {
            CommitWait::Retry(at) if at <= now => {
                commit.wait = CommitWait::Outcome;
                commit.sent_at = now;
                self.effects.push(Effect::Commit(commit.id, Arc::clone(&commit.batch)));
            }
            CommitWait::HeadRetry(at) if at <= now => {
                commit.wait = CommitWait::Head;
                self.effects.push(Effect::ReadHead);
            }
            _ => {}
        }
    }

    pub(super) fn commit_wake(&self) -> Option<Monotonic> {
        match self.commits.in_flight.as_ref()?.wait {
            CommitWait::Retry(at) | CommitWait::HeadRetry(at) => Some(at),
            CommitWait::Outcome | CommitWait::Head => None,
        }
    }

    pub(super) fn on_commit_finished(&mut self, id: CommitId, outcome: CommitOutcome) {
        let now = self.now.mono;
        let assumed_done = fault_injected!(self, UnknownOutcomeAsSuccess);
        let Some(commit) = self.commits.in_flight.as_mut().filter(|commit| commit.id == id) else { return };
        match outcome {
            CommitOutcome::Committed(receipt) => self.on_committed(receipt.head_version),
            CommitOutcome::Unavailable { .. } => {
                commit.tries += 1;
                commit.wait = CommitWait::Retry(later(now, backoff(commit.tries)));
            }
            CommitOutcome::Unknown { .. } if assumed_done => self.on_committed(None),
            // Also if the store reports another owner: an earlier copy of this commit may have been applied after all.
            CommitOutcome::Unknown { .. } | CommitOutcome::Fenced | CommitOutcome::Conflict(_) => {
                commit.wait = CommitWait::Head;
                self.effects.push(Effect::ReadHead);
            }
            CommitOutcome::InvalidBatch(error) => self.stop(StopReason::Broken(error.to_string())),
        }
    }

    /// Resolves the commit in flight by the head: committed, to be repeated, or lost to another owner.
    pub(super) fn resolve_commit_outcome(&mut self, result: Result<Option<Row>, StoreError>) {
        let now = self.now.mono;
        let expected = self.phase.owned_head().and_then(|owned| owned.head_version.clone());
        let Some(commit) = &mut self.commits.in_flight else { return };
        let row = match result {
            Ok(row) => row,
            Err(StoreError::Unavailable { .. }) => {
                commit.tries += 1;
                commit.wait = CommitWait::HeadRetry(later(now, backoff(commit.tries)));
                return;
            }
            Err(error @ StoreError::Corrupt { .. }) => {
                return self.stop(StopReason::Broken(error.to_string()));
            }
        };
        let head: Option<HeadRow> = row.as_ref().and_then(|row| decode(&row.value).ok());
        if head.is_some_and(|head| head.last_commit == commit.id) {
            return self.on_committed(row.map(|row| row.version));
        }
        if row.map(|row| row.version) == expected {
            commit.tries += 1;
            commit.wait = CommitWait::Retry(later(now, backoff(commit.tries)));
            return;
        }
        match &self.phase {
            OwnershipPhase::Acquiring(watch, _) => {
                let watch = watch.clone();
                self.commits = CommitQueue::new(self.config.store_limits);
                self.phase = OwnershipPhase::Watching(watch, Some(later(now, HEAD_RETRY_DELAY)));
            }
            _ => self.stop(StopReason::Lost),
        }
    }

    fn on_committed(&mut self, head: Option<RowVersion>) {
        let Some(commit) = self.commits.complete_in_flight() else { return };
        if let Some(owned) = self.phase.owned_head_mut() {
            owned.head_version = head;
            owned.lease.confirm(commit.sent_at);
        }
        if let OwnershipPhase::Acquiring(_, owned) = &self.phase {
            let owned = owned.clone();
            let fencing_token = owned.fencing_token;
            self.phase = OwnershipPhase::Recovering(owned);
            self.notify(OperatorEvent::Owned { fencing_token });
            self.begin_recovery();
        }
        for action in commit.on_commit {
            self.run_on_commit(action);
        }
    }

    /// Runs an action whose commit is durable.
    pub(super) fn run_on_commit(&mut self, action: OnCommit) {
        match action {
            OnCommit::Effect(effect) => self.effects.push(effect),
            OnCommit::ArmTimer(timer, id) => self.arm_timer(timer, id),
            OnCommit::Schedule(due, id) => self.schedule.add(due, id),
            OnCommit::PublishToIndex(run, item) => self.public_index.enqueue(run, item, self.now.mono),
            OnCommit::Evict(id) => self.evict_if_done(&id),
            OnCommit::ProcessInstance(id) => self.process_instance(&id),
        }
    }
}
