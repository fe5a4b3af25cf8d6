//! Careful recovery: after the process has ended uncleanly twice in a row, the stored work of one instance at a time is
//! done, and the head names the instance meanwhile. So if the process ends again, its work is known to be the cause.
//!
//! ```text
//!  waiting ──> named: a commit with the mark ──> durable: its run is loaded, its turns run ──> done: a commit without
//! ```
//!
//! What unwinds is contained where it happens ([`crate::panics`]); this is for what ends the process: an abort, a stack
//! that overflows, a lack of memory. Only the state is here: [`root::careful`](crate::shard::root) decides what needs a
//! mark and what becomes of a marked instance; the commit pipeline writes the mark into the head. Normal work writes
//! no mark and no commit of its own. See docs/adr/0023.

use std::collections::{HashSet, VecDeque};
use std::time::Duration;

use abide_store::tables::heads::HeadRow;
use abide_workflow::InstanceId;

use crate::lease::Monotonic;
use crate::shard::backoff::later;
use crate::shard::commit::commit_queue::BatchNumber;
use crate::turnstile::{Ticket, Turnstile};

/// An owner that has worked for this long without ending uncleanly clears the count.
const CLEARED_AFTER: Duration = Duration::from_secs(60);
/// Instances that a shard names before other shards of the process have their turn.
const NAMED_PER_TURN: u32 = 16;

/// How the owners before this one ended, and the progress of careful recovery.
#[derive(Debug, Default)]
pub(in crate::shard) struct CarefulRecovery {
    /// Claims in a row, up to this one, that followed an unclean end.
    unclean_claims: u32,
    /// From this many unclean claims in a row on, recovery is careful.
    careful_from: u32,
    working_since: Option<Monotonic>,
    /// The shard has worked for long enough: nothing more waits for a mark.
    closing: bool,
    /// Instances whose work waits for a mark, in order.
    waiting: VecDeque<InstanceId>,
    in_waiting: HashSet<InstanceId>,
    mark: Option<HeadMark>,
    /// The place of the shard in the line of its process, while something waits or is named.
    ticket: Option<Ticket>,
    /// Instances that were named.
    named: u32,
}

/// An instance that the head names, or is about to.
#[derive(Debug)]
struct HeadMark {
    instance_id: InstanceId,
    stage: MarkStage,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum MarkStage {
    /// An earlier owner has named it, and the process ended: its run is to be parked.
    Inherited,
    /// Its work may begin once this batch is durable.
    Named(BatchNumber),
    /// Its work is done. The commit of this batch no longer names it.
    Done(BatchNumber),
}

impl CarefulRecovery {
    /// This node is about to take the shard over. Returns an error if the head names an instance that cannot exist.
    pub(in crate::shard) fn begin_claim(
        &mut self,
        head: Option<&HeadRow>,
        careful_from: u32,
    ) -> Result<(), String> {
        *self = Self { careful_from, ..Self::default() };
        let Some(head) = head else { return Ok(()) };
        if !head.is_released() {
            self.unclean_claims = head.unclean_claims.saturating_add(1);
        }
        if let Some(marked) = &head.marked_instance {
            let instance_id = InstanceId::new(marked.clone()).map_err(|error| error.to_string())?;
            self.mark = Some(HeadMark { instance_id, stage: MarkStage::Inherited });
        }
        Ok(())
    }

    pub(in crate::shard) fn unclean_claims(&self) -> u32 {
        self.unclean_claims
    }

    /// Returns whether stored work is done one instance at a time.
    pub(in crate::shard) fn is_on(&self) -> bool {
        self.unclean_claims > 0 && self.unclean_claims >= self.careful_from
    }

    /// Returns whether a turn may have to wait for a mark, its own or that of another instance.
    pub(in crate::shard) fn is_active(&self) -> bool {
        self.is_on() || self.mark.is_some()
    }

    /// Returns whether some work waits for a mark, or the head names an instance.
    fn is_busy(&self) -> bool {
        self.mark.is_some() || !self.waiting.is_empty()
    }

    /// Returns whether there is work that waits for a mark or is done under one. A shard is not released meanwhile.
    pub(in crate::shard) fn has_work(&self) -> bool {
        let at_work = self.mark.as_ref().is_some_and(|mark| !matches!(mark.stage, MarkStage::Done(_)));
        at_work || !self.waiting.is_empty()
    }

    /// Recovery is complete.
    pub(in crate::shard) fn begin_work(&mut self, now: Monotonic) {
        self.working_since = Some(now);
    }

    /// Once the shard has worked for long enough, nothing more waits for a mark; and when nothing waits any more, the
    /// count is cleared. The next commit writes that; it has none of its own.
    pub(in crate::shard) fn drive(&mut self, now: Monotonic) {
        self.closing |= self.working_since.is_some_and(|since| later(since, CLEARED_AFTER) <= now);
        if self.is_busy() {
            return;
        }
        self.ticket = None;
        if self.closing {
            self.unclean_claims = 0;
        }
    }

    /// When to look whether it is this shard's turn.
    pub(in crate::shard) fn wake(&self, now: Monotonic) -> Option<Monotonic> {
        let waits = self.mark.is_none() && !self.waiting.is_empty();
        waits.then(|| later(now, Turnstile::LOOK_AGAIN))
    }

    /// Returns whether the stored work of the instance must wait for its mark: at the end, or before all others if a
    /// client waits for it.
    pub(in crate::shard) fn must_wait(
        &mut self,
        id: &InstanceId,
        durable: BatchNumber,
        for_client: bool,
    ) -> bool {
        if self.is_named(id, durable) || self.closing && !self.in_waiting.contains(id) {
            return false;
        }
        if self.is_to_be_named(id) || !self.in_waiting.insert(id.clone()) {
            return true;
        }
        if for_client {
            self.waiting.push_front(id.clone());
        } else {
            self.waiting.push_back(id.clone());
        }
        true
    }

    /// Returns whether a commit that names the instance is under way.
    fn is_to_be_named(&self, id: &InstanceId) -> bool {
        let mark = self.mark.as_ref().filter(|mark| mark.instance_id == *id);
        mark.is_some_and(|mark| matches!(mark.stage, MarkStage::Named(_)))
    }

    /// The next instance that waits, if no other of this process is named.
    pub(in crate::shard) fn next_waiting(&mut self, turnstile: &Turnstile) -> Option<InstanceId> {
        if self.mark.is_some() || self.waiting.is_empty() {
            return None;
        }
        let ticket = self.ticket.get_or_insert_with(|| turnstile.line_up());
        if !ticket.may_pass() {
            return None;
        }
        let id = self.waiting.pop_front()?;
        self.in_waiting.remove(&id);
        Some(id)
    }

    /// Names the instance in all commits from now on, of which this batch has one.
    pub(in crate::shard) fn name(&mut self, instance_id: InstanceId, batch: BatchNumber) {
        self.mark = Some(HeadMark { instance_id, stage: MarkStage::Named(batch) });
    }

    /// Returns whether the store names the instance, so that its work may be done.
    pub(in crate::shard) fn is_named(&self, id: &InstanceId, durable: BatchNumber) -> bool {
        self.mark.as_ref().is_some_and(|mark| {
            mark.instance_id == *id && matches!(mark.stage, MarkStage::Named(batch) if batch <= durable)
        })
    }

    /// Returns whether the store names another instance, or is about to. What ends the process now would be taken for
    /// the work of that one.
    pub(in crate::shard) fn names_another(&self, id: &InstanceId) -> bool {
        self.mark.as_ref().is_some_and(|mark| mark.instance_id != *id)
    }

    /// The instance that an earlier owner had named when its process ended.
    pub(in crate::shard) fn inherited(&self) -> Option<&InstanceId> {
        let mark = self.mark.as_ref().filter(|mark| mark.stage == MarkStage::Inherited)?;
        Some(&mark.instance_id)
    }

    /// The work of the named instance is done, and its rows are in this batch or in earlier ones.
    pub(in crate::shard) fn finish(&mut self, batch: BatchNumber) {
        if let Some(mark) = &mut self.mark {
            mark.stage = MarkStage::Done(batch);
        }
    }

    /// All batches up to this one are durable: the next instance may be named if the last one no longer is.
    pub(in crate::shard) fn on_durable(&mut self, durable: BatchNumber) {
        let done = |mark: &mut HeadMark| matches!(mark.stage, MarkStage::Done(batch) if batch <= durable);
        if self.mark.take_if(done).is_some() {
            self.named += 1;
            if self.named.is_multiple_of(NAMED_PER_TURN) {
                self.ticket = None;
            }
        }
    }

    /// The instance that the head of this batch names.
    pub(in crate::shard) fn marked_instance(&self, batch: BatchNumber) -> Option<String> {
        let mark = self.mark.as_ref()?;
        let done = matches!(mark.stage, MarkStage::Done(done_in) if done_in <= batch);
        (!done).then(|| mark.instance_id.as_str().to_owned())
    }
}
