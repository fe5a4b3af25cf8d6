//! Notes up to where a run has read the events of an entity, in the turn that takes the result of the reading call.
//!
//! So the run can clear these events and no later ones. The activities themselves are not known here.

use abide_workflow::CommandId;
use abide_workflow::history::{Fact, HistoryEvent};
use abide_workflow::json::Json;

use crate::entity::events_read::events_read;
use crate::run::EntryChange;
use crate::shard::run::run_state::ResidentRun;

/// Notes what the run has read with this result, if it has read events and taken them.
pub(super) fn note_events_read(
    run: &mut ResidentRun,
    command: CommandId,
    result: &Json,
    history: &[HistoryEvent],
) -> Option<EntryChange> {
    let call = run.calls.get(&command)?;
    let read = events_read(&call.activity, &call.input, result).filter(|_| is_taken(history, command))?;
    run.bookkeeping.set_events_read(read.entity, read.position)
}

/// False if the result came too late, was refused, or could not be kept: then the run has not seen the events. The
/// result of a suspended run is held, and leaves no trace in the history until it is taken.
fn is_taken(history: &[HistoryEvent], command: CommandId) -> bool {
    let is_end = |event: &&HistoryEvent| match &event.fact {
        Fact::TaskCompleted { command: of, .. } | Fact::TaskFailed { command: of, .. } => *of == command,
        _ => false,
    };
    let mut rest = history.iter().skip_while(|event| !is_end(event));
    match rest.next().map(|event| &event.fact) {
        None => true,
        Some(Fact::TaskCompleted { late: false, .. }) => {
            !matches!(rest.next().map(|event| &event.fact), Some(Fact::StateLeft { error: Some(_), .. }))
        }
        Some(_) => false,
    }
}
