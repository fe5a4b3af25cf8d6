//! Continue-as-new: the commit that ends a run also creates the next run of the instance.
//!
//! Messages of clients move to the next run. Results and timers name commands of the run that ended and are dropped
//! with it. The interpreter decides when a run continues as new.

use abide_ids::PageNumber;
use abide_store::tables::inbox;
use abide_store::tables::instances::RunStatus;
use abide_workflow::{Instance, Message, PartChange, Turn};

use super::Shard;
#[cfg(feature = "faults")]
use super::fault_injected;
use super::history_pages::part_change;
use super::instance_slot::{MessageSource, QueuedMessage};
use super::run_state::ResidentRun;

impl Shard {
    /// The next run, if this turn continued as new.
    pub(super) fn take_next_run(&self, turn: &mut Turn) -> Option<Instance> {
        let next = *turn.next_run.take()?;
        #[cfg(feature = "faults")]
        if fault_injected!(self, EventLostAtContinue) {
            return Some(Instance::pending(next.origin().clone(), self.now.wall));
        }
        Some(next)
    }

    /// Replaces the run by the next one, in the batch that ends it. The turns of the next run follow as for any run.
    pub(super) fn continue_as_new(&mut self, run: &mut ResidentRun, next: Instance, parts: Vec<PartChange>) {
        self.index_final_state(run);
        self.record_earlier_run(&run.instance.origin().instance_id, run.row.run_number, run.row.run_id);
        let run_id = self.next_run_id();
        let mut row = run.row.clone();
        row.run_id = run_id;
        row.run_number = next.origin().run;
        row.status = RunStatus::Pending;
        row.folded_page = PageNumber::ZERO;
        row.last_page = PageNumber::ZERO;
        row.created_at = self.now.wall;
        let (messages, sources) = (std::mem::take(&mut run.messages), std::mem::take(&mut run.sources));
        let mut next_run = ResidentRun::new(row, run.plan.clone(), next, run.written_batch);
        // Results name commands of the run that ended. Their rows are deleted with it, or here.
        for (message, source) in messages.into_iter().zip(sources) {
            match source {
                MessageSource::Client(..) | MessageSource::SessionEvent(..) => {
                    next_run.push_message(QueuedMessage { message, source })
                }
                MessageSource::Call { .. } => {}
                MessageSource::Timer(timer) => self.delete_timer(&timer),
                // A parent that terminates its child means the current run.
                MessageSource::Inbox(_) if matches!(message, Message::Terminate { .. }) => {
                    next_run.push_message(QueuedMessage { message, source });
                }
                MessageSource::Inbox(sequence) => {
                    self.commits.delete(inbox::key(sequence));
                }
            }
        }
        if let Some(sequence) = run.continuation_row.take() {
            self.commits.delete(inbox::key(sequence));
        }
        next_run.in_ready_queue = run.in_ready_queue;
        next_run.idle_since = run.idle_since;
        next_run.empty_continuations = run.empty_continuations + 1;
        *run = next_run;
        self.write_initial_state(run, parts);
    }

    /// Writes a run before its first turn: its parts, its row, and the continuation row that makes recovery run the
    /// turn.
    pub(super) fn write_initial_state(&mut self, run: &mut ResidentRun, parts: Vec<PartChange>) {
        self.write_pages(run, &[], Vec::new(), parts.into_iter().map(part_change).collect());
        self.write_continuation(run, true);
        self.write_instance_row(run);
        run.written_batch = self.commits.batch_number();
    }
}
