//! What every component of a shard works with: the time, the configuration, the ownership, the pending commits, the
//! effects for the driver, and the numbers that the shard gives out.
//!
//! The context knows no component and no run. A component gets it for one call; nothing keeps it.

use abide_ids::{RunId, Sequence};
use abide_workflow::Duration;

use crate::config::ShardConfig;
use crate::event::{Effect, OperatorEvent};
use crate::now::Now;
use crate::placement::ShardId;
use crate::request::{RequestError, RequestId, ShardReply};
use crate::shard::commit::commit_queue::{BatchNumber, CommitQueue, OnCommit};
use crate::shard::ownership::OwnershipPhase;
use crate::shard::ownership::careful::CarefulRecovery;

/// The context of a shard; see above.
#[derive(Debug)]
pub(super) struct Context {
    pub(super) id: ShardId,
    pub(super) config: ShardConfig,
    pub(super) now: Now,
    pub(super) phase: OwnershipPhase,
    pub(super) commits: CommitQueue,
    pub(super) effects: Vec<Effect>,
    /// The last number given out.
    pub(super) sequence: Sequence,
    /// The retention that the expiries of ended runs agree with. Longer than the configured one until they have been
    /// reviewed.
    pub(super) applied_retention: Duration,
    /// How the owners before this one ended, and the instance that the head names for that.
    pub(super) careful: CarefulRecovery,
}

impl Context {
    pub(super) fn new(id: ShardId, config: ShardConfig, now: Now) -> Self {
        Self {
            id,
            now,
            phase: OwnershipPhase::new(config.lease_times),
            commits: CommitQueue::new(config.store_limits),
            effects: Vec::new(),
            sequence: Sequence::ZERO,
            applied_retention: config.retention,
            careful: CarefulRecovery::default(),
            config,
        }
    }

    /// The token of this ownership, which the commit that acquires the shard already carries; none if it is not owned.
    pub(super) fn fencing_token(&self) -> Option<u64> {
        self.phase.owned_head().map(|owned| owned.fencing_token)
    }

    pub(super) fn is_draining(&self) -> bool {
        matches!(self.phase, OwnershipPhase::Draining(_))
    }

    /// The next number for a row, a run or a revision. Every commit stores the last number in the head, so the next
    /// owner continues after it.
    pub(super) fn next_sequence(&mut self) -> Sequence {
        self.sequence = self.sequence.next();
        self.sequence
    }

    pub(super) fn next_run_id(&mut self) -> RunId {
        RunId(self.next_sequence().0)
    }

    /// The number of the next state of a public row. Revisions grow with the sequence of the shard.
    pub(super) fn next_revision(&mut self) -> u64 {
        self.next_sequence().0
    }

    /// Replies at once. A reply that describes a change waits for its commit instead.
    pub(super) fn reply(&mut self, request_id: RequestId, reply: ShardReply) {
        self.effects.push(Effect::Reply(request_id, reply));
    }

    /// Sends the effect once the batch with this number is durable, which may be now.
    pub(super) fn send_when_durable(&mut self, batch: BatchNumber, effect: Effect) {
        if let Some(OnCommit::Effect(effect)) =
            self.commits.defer_until_durable(batch, OnCommit::Effect(effect))
        {
            self.effects.push(effect);
        }
    }

    /// Refuses at once. A refusal because of a state that may not be durable yet waits for it instead.
    pub(super) fn refuse(&mut self, request_id: RequestId, refusal: RequestError) {
        self.reply(request_id, ShardReply::Refused(refusal));
    }

    /// Tells the operator at once, whatever becomes of the open batch.
    pub(super) fn notify(&mut self, notice: OperatorEvent) {
        self.effects.push(Effect::Notify(notice));
    }

    #[cfg(feature = "faults")]
    pub(super) fn has_fault(&self, fault: crate::fault_injection::Fault) -> bool {
        self.config.fault == Some(fault)
    }
}
