//! Sends the commits of a shard one at a time, resolves their outcomes, and returns the actions that waited for them.
//!
//! Every commit carries the head row of the shard, fenced by the version this owner last saw. So a shard that has lost
//! its ownership cannot write. A commit of unknown outcome is resolved by reading the head: the head names the last
//! commit that happened.
//!
//! The pipeline does not know what the rows of a commit mean. [`commit_queue`](crate::shard::commit::commit_queue)
//! collects them.

use std::sync::Arc;

use abide_store::rows::{Batch, CommitOutcome, Row, RowVersion, StoreError};
use abide_store::tables::heads::{self, CommitId, HeadRow};
use abide_store::tables::{decode, encode};

use crate::event::{Effect, StopReason};
use crate::fault_check::fault_injected;
use crate::lease::Monotonic;
use crate::shard::backoff::{backoff, later};
use crate::shard::commit::commit_queue::{CommitWait, InFlightCommit, OnCommit};
use crate::shard::context::Context;

/// The progress of the commits.
#[derive(Debug, Default)]
pub(in crate::shard) struct CommitPipeline {
    sent: u64,
    /// Since when the open batch waits although nothing is in flight, because nothing waits for it.
    lingering_since: Option<Monotonic>,
}

/// What an event means for the commit in flight.
#[derive(Debug)]
pub(in crate::shard) enum CommitResult {
    /// Its outcome is not known yet, or it is sent again.
    Pending,
    /// It is durable; these actions waited for it. `acquired` if it made this node the owner.
    Durable { on_commit: Vec<OnCommit>, acquired: bool },
    /// The shard cannot go on.
    Stop(StopReason),
}

impl CommitPipeline {
    /// Sends the next commit, if there is one to send and none is in flight. Called at every flush of an owner, and
    /// when a shard is to be acquired: then the commit may have no row but the head. With the last commit of a draining
    /// shard, which has no work left, the shard is released: the next owner takes it over at once, so no other rows may
    /// be pending.
    pub(in crate::shard) fn send_next(&mut self, ctx: &mut Context, no_work_left: bool) {
        let lingering = ctx.commits.is_lingering();
        self.lingering_since = if lingering { self.lingering_since.or(Some(ctx.now.mono)) } else { None };
        let waited = self
            .lingering_since
            .is_some_and(|since| later(since, ctx.config.lazy_commit_delay) <= ctx.now.mono);
        let Some((rows, on_commit)) =
            ctx.commits.take_next(waited || lingering && ctx.commits.is_half_full())
        else {
            return;
        };
        self.lingering_since = None;
        let Some(id) = self.next_commit_id(ctx) else { return };
        let Some(owned) = ctx.phase.owned_head_mut() else { return };
        owned.heartbeat += 1;
        let released = ctx.is_draining() && no_work_left && ctx.commits.has_nothing_pending();
        let Some(owned) = ctx.phase.owned_head() else { return };
        let head = HeadRow {
            owner: (!released).then(|| ctx.config.node_name.clone()),
            fencing_token: owned.fencing_token,
            heartbeat: owned.heartbeat,
            last_commit: id,
            last_sequence: ctx.sequence,
            retention_ms: ctx.applied_retention.0,
            unclean_claims: ctx.careful.unclean_claims(),
            marked_instance: ctx
                .careful
                .marked_instance(ctx.commits.next_durable())
                .filter(|_| !released && !fault_injected!(ctx, MarkNotWritten)),
        };
        let mut batch = Batch::fenced(heads::key(), owned.head_version.clone(), encode(&head));
        for (key, value) in rows {
            batch = match value {
                Some(value) => batch.put(key, value),
                None => batch.delete(key),
            };
        }
        let (sent, waiting) = (ctx.now.mono, CommitWait::Outcome);
        let batch = Arc::new(batch);
        ctx.effects.push(Effect::Commit(id, Arc::clone(&batch)));
        ctx.commits.in_flight =
            Some(InFlightCommit { id, batch, on_commit, sent_at: sent, tries: 0, wait: waiting });
    }

    /// The id contains the fencing token: a node that loses the shard and acquires it again must not mistake one of its
    /// old commits for a new one.
    fn next_commit_id(&mut self, ctx: &Context) -> Option<CommitId> {
        self.sent += 1;
        let ownership = u128::from(ctx.fencing_token()? & 0xff_ffff) << 40;
        Some(CommitId(u128::from(ctx.config.incarnation) << 64 | ownership | u128::from(self.sent)))
    }

    /// Repeats a commit that failed, or the read of the head that is to resolve its outcome.
    pub(in crate::shard) fn drive(&self, ctx: &mut Context) {
        let now = ctx.now.mono;
        let Some(commit) = &mut ctx.commits.in_flight else { return };
        match commit.wait {
            CommitWait::Retry(at) if at <= now => {
                commit.wait = CommitWait::Outcome;
                commit.sent_at = now;
                ctx.effects.push(Effect::Commit(commit.id, Arc::clone(&commit.batch)));
            }
            CommitWait::HeadRetry(at) if at <= now => {
                commit.wait = CommitWait::Head;
                ctx.effects.push(Effect::ReadHead);
            }
            _ => {}
        }
    }

    /// When a lingering batch is to be sent.
    pub(in crate::shard) fn linger_wake(&self, ctx: &Context) -> Option<Monotonic> {
        self.lingering_since.map(|since| later(since, ctx.config.lazy_commit_delay))
    }

    /// When the commit in flight, or the read of the head for it, is to be repeated.
    pub(in crate::shard) fn wake(&self, ctx: &Context) -> Option<Monotonic> {
        match ctx.commits.in_flight.as_ref()?.wait {
            CommitWait::Retry(at) | CommitWait::HeadRetry(at) => Some(at),
            CommitWait::Outcome | CommitWait::Head => None,
        }
    }

    /// The driver reports the outcome of a commit. One that is not in flight is ignored; one of unknown outcome causes
    /// a read of the head.
    pub(in crate::shard) fn on_finished(
        &self,
        ctx: &mut Context,
        id: CommitId,
        outcome: CommitOutcome,
    ) -> CommitResult {
        let now = ctx.now.mono;
        let Some(commit) = ctx.commits.in_flight.as_mut().filter(|commit| commit.id == id) else {
            return CommitResult::Pending;
        };
        match outcome {
            CommitOutcome::Committed(receipt) => return on_committed(ctx, receipt.head_version),
            CommitOutcome::Unavailable { .. } => {
                commit.tries += 1;
                commit.wait = CommitWait::Retry(later(now, backoff(commit.tries)));
            }
            // Also if the store reports another owner: an earlier copy of this commit may have been applied after all.
            CommitOutcome::Unknown { .. } | CommitOutcome::Fenced | CommitOutcome::Conflict(_) => {
                commit.wait = CommitWait::Head;
                ctx.effects.push(Effect::ReadHead);
            }
            CommitOutcome::InvalidBatch(error) => {
                return CommitResult::Stop(StopReason::Broken(error.to_string()));
            }
        }
        CommitResult::Pending
    }

    /// Resolves the commit in flight by the head, which was read for it: committed, to be repeated, or lost to another
    /// owner.
    pub(in crate::shard) fn resolve_outcome(
        &self,
        ctx: &mut Context,
        result: Result<Option<Row>, StoreError>,
    ) -> CommitResult {
        let now = ctx.now.mono;
        let expected = ctx.phase.owned_head().and_then(|owned| owned.head_version.clone());
        let Some(commit) = &mut ctx.commits.in_flight else { return CommitResult::Pending };
        let row = match result {
            Ok(row) => row,
            Err(StoreError::Unavailable { .. }) => {
                commit.tries += 1;
                commit.wait = CommitWait::HeadRetry(later(now, backoff(commit.tries)));
                return CommitResult::Pending;
            }
            Err(error @ StoreError::Corrupt { .. }) => {
                return CommitResult::Stop(StopReason::Broken(error.to_string()));
            }
        };
        let head: Option<HeadRow> = row.as_ref().and_then(|row| decode(&row.value).ok());
        if head.is_some_and(|head| head.last_commit == commit.id) {
            return on_committed(ctx, row.map(|row| row.version));
        }
        if row.map(|row| row.version) == expected {
            commit.tries += 1;
            commit.wait = CommitWait::Retry(later(now, backoff(commit.tries)));
            return CommitResult::Pending;
        }
        match ctx.on_head_lost() {
            Ok(()) => CommitResult::Pending,
            Err(reason) => CommitResult::Stop(reason),
        }
    }
}

/// The commit in flight is durable, and with it a new version of the head, which renews the lease.
fn on_committed(ctx: &mut Context, head_version: Option<RowVersion>) -> CommitResult {
    let Some(commit) = ctx.commits.complete_in_flight() else { return CommitResult::Pending };
    ctx.careful.on_durable(ctx.commits.durable_batch);
    let acquired = ctx.on_head_committed(head_version, commit.sent_at);
    CommitResult::Durable { on_commit: commit.on_commit, acquired }
}
