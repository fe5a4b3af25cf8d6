//! Writes the rows of a run that several kinds of work touch: its instance row, continuation row and initial state.
//!
//! It does not know why a row changes. The pages of a run are written in
//! [`history_pages`].

use abide_store::tables::{encode, inbox, instances};
use abide_workflow::PartChange;

use crate::run_message::{self, RunMessage};
use crate::shard::run::history_pages::{self, part_change};
use crate::shard::run::run_state::ResidentRun;
use crate::shard::unit_of_work::UnitOfWork;

/// Called by each turn: a turn that was cut short leaves a row in the inbox, so that recovery goes on with the run;
/// one that was not deletes it. Also for a run before its first turn, or resumed.
pub(in crate::shard) fn write_continuation(
    work: &mut UnitOfWork<'_>,
    run: &mut ResidentRun,
    unfinished: bool,
) {
    run.unfinished = unfinished;
    match (unfinished, run.continuation_row) {
        (true, None) => {
            let sequence = work.ctx.next_sequence();
            run.continuation_row = Some(sequence);
            let message = RunMessage::Continue { run_id: run.row.run_id };
            let row = inbox::InboxRow {
                instance_id: run.instance.origin().instance_id.as_str().to_owned(),
                received_at: work.ctx.now.wall,
                message: run_message::encode(&message),
            };
            work.create(inbox::key(sequence), encode(&row));
        }
        (false, Some(sequence)) => {
            work.delete(inbox::key(sequence));
            run.continuation_row = None;
        }
        _ => {}
    }
}

/// Writes the instance row with the time and the last page of now, without delay.
pub(in crate::shard) fn write_instance_row(work: &mut UnitOfWork<'_>, run: &mut ResidentRun) {
    run.row.last_page = run.last_page;
    run.row.updated_at = work.ctx.now.wall;
    let key = instances::key(run.instance.origin().instance_id.as_str());
    work.put(key, encode(&run.row));
    work.mark_urgent();
}

/// Writes a run before its first turn: its parts, its row, and the continuation row that makes recovery run the turn.
pub(in crate::shard) fn write_initial_state(
    work: &mut UnitOfWork<'_>,
    run: &mut ResidentRun,
    parts: Vec<PartChange>,
) {
    history_pages::write_pages(work, run, &[], Vec::new(), parts.into_iter().map(part_change).collect());
    write_continuation(work, run, true);
    write_instance_row(work, run);
    work.note_newest_rows();
}
