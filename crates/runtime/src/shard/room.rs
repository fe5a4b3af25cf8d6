//! How much of a commit a turn takes, known before any of its rows is written: never less than it comes to.
//!
//! A gathering cannot be taken back, and a commit that does not fit is refused as a whole, with everybody who is in it. So a turn that would not fit
//! is found here, and only its own run is set aside. The limits on turns make that rare.

use std::borrow::Cow;
use std::collections::BTreeSet;

use abide_store::tables::dispatches::PastDelivery;
use abide_workflow::command::{Command, CommandKind};
use abide_workflow::{CommandId, Corrupt, Limits, Message, PartChange, Turn, TurnLimits, json};

use super::Shard;
use super::given_up::letter_bytes;
use super::routed::given_up_bytes;
use super::slot::{From, OpenCall, Run};

/// Rows that a turn writes besides those of its messages, its commands and its pages: of the id, the public feed, a kept answer and its expiry, the
/// request it came from, the notes to go on and to look after it, the run it replaces, and the same of a next run.
const OTHER_ROWS: usize = 14;
/// Bytes of these without names, and of any row without what it carries.
const OTHER_BYTES: usize = 4 * 1024;
const ROW_BYTES: usize = 512;

/// Rows and bytes of something.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Room {
    pub(super) rows: usize,
    pub(super) bytes: usize,
}

impl Shard {
    /// What this turn may be. A run whose failed calls have large inputs goes step by step: each is written again when it is decided upon, and how
    /// large it is only the record knows.
    pub(super) fn limits_of(&self, run: &Run) -> Cow<'_, Limits> {
        let limits = &self.config.run;
        let failed = run.messages.iter().take(limits.turn.messages_max).filter_map(failed_call);
        let rewritten: usize =
            failed.chain(run.held.iter().copied()).map(|command| input_bytes(run, command)).sum();
        if rewritten <= self.config.store.commit_bytes_max / 8 {
            return Cow::Borrowed(limits);
        }
        let turn = TurnLimits { messages_max: 1, steps_max: 1, ..limits.turn };
        Cow::Owned(Limits { turn, ..limits.clone() })
    }

    /// What a turn will write at most: its pages with `events` bytes of history, its commands, and the parts of a next run. An error if no commit
    /// can hold it.
    pub(super) fn room_for(
        &self,
        run: &Run,
        turn: &Turn,
        events: usize,
        next: &[PartChange],
    ) -> Result<Room, Corrupt> {
        let names = names_of(run);
        let settled: usize = settled(run, turn).map(open_bytes).sum();
        let paged = events + settled + bytes_of(&turn.changes) + bytes_of(next);
        let commands: usize =
            turn.commands.iter().map(|command| carried(command) + ROW_BYTES + 3 * names).sum();
        let rewritten: usize =
            rewritten(run, turn).into_iter().map(|command| input_bytes(run, command)).sum();
        let refused = turn.refused.iter().filter_map(|(position, _)| run.froms.get(*position));
        let given_up: usize = refused.map(given_up_with).sum();
        let failed = failed(run, turn);
        let letters: usize = failed.iter().map(|call| letter_bytes(call) + 4 * names).sum();
        let small = turn.consumed * ROW_BYTES + OTHER_BYTES + 8 * names;
        let room = Room {
            // Two pages that follow each other are more than one can hold; and each of three kinds may end with a small one.
            rows: turn.consumed
                + turn.refused.len()
                + turn.commands.len()
                + failed.len()
                + OTHER_ROWS
                + 4
                + 2 * paged / self.page_bytes(),
            bytes: paged + commands + rewritten + given_up + letters + small,
        };
        if self.commits.can_hold(room.rows, room.bytes) {
            return Ok(room);
        }
        let Room { rows, bytes } = room;
        let reason =
            format!("its turn has {rows} rows and {bytes} bytes, and no commit of this store holds that");
        Err(Corrupt { reason })
    }

    /// Bytes that one page may have.
    pub(super) fn page_bytes(&self) -> usize {
        let value = self.config.store.value_bytes_max;
        value - value / 64
    }
}

/// About how many bytes parts have in a page.
pub(super) fn bytes_of(changes: &[PartChange]) -> usize {
    changes
        .iter()
        .map(|change| change.key.to_bytes().len() + change.value.as_ref().map_or(0, Vec::len) + 16)
        .sum()
}

/// Bytes of the names that rows of a run repeat.
fn names_of(run: &Run) -> usize {
    let (row, origin) = (&run.row, run.instance.origin());
    let texts = [&row.definition, &row.version, &row.correlation_id];
    texts.into_iter().map(String::len).sum::<usize>()
        + origin.instance_id.as_str().len()
        + row.entity_id.as_ref().map_or(0, String::len)
        + row.parent.as_ref().map_or(0, |parent| parent.instance_id.len())
}

/// Bytes that a command brings into the row it becomes.
fn carried(command: &Command) -> usize {
    let size = |value: &json::Json| usize::try_from(json::size(value)).unwrap_or(usize::MAX);
    match &command.kind {
        CommandKind::StartActivity(start) => {
            let secrets: usize = start.secrets.iter().map(|place| place.len() + 8).sum();
            size(&start.input) + start.activity.len() + start.step.path.len() + secrets
        }
        CommandKind::StartChild(child) => {
            size(&child.input) + child.workflow.len() + 4 * child.instance_id.as_str().len() + ROW_BYTES
        }
        CommandKind::Complete { output } => size(output),
        CommandKind::Fail { failure } => {
            failure.message.len() + failure.code.len() + failure.state.as_ref().map_or(0, String::len)
        }
        CommandKind::Terminate { reason } => reason.len(),
        // The child's id, twice.
        CommandKind::TerminateChild { .. } => ROW_BYTES,
        _ => 0,
    }
}

/// Calls whose records are written again with this turn.
fn rewritten(run: &Run, turn: &Turn) -> BTreeSet<CommandId> {
    let failed = run.messages.iter().zip(&run.froms).take(turn.consumed);
    let failed = failed
        .filter(|(_, from)| matches!(from, From::Call { .. }))
        .filter_map(|(message, _)| failed_call(message));
    let again = turn.commands.iter().filter_map(|command| match &command.kind {
        CommandKind::Redeliver { dispatch, .. } => Some(*dispatch),
        _ => None,
    });
    failed.chain(again).collect()
}

/// Calls that may be settled with this turn.
fn settled<'r>(run: &'r Run, turn: &'r Turn) -> impl Iterator<Item = &'r OpenCall> {
    let answered = run.froms.iter().take(turn.consumed).filter_map(|from| match from {
        From::Call { command, .. } => Some(*command),
        _ => None,
    });
    let cancelled = turn.commands.iter().filter_map(|command| match command.kind {
        CommandKind::CancelActivity { dispatch } => Some(dispatch),
        _ => None,
    });
    let commands = answered.chain(cancelled).chain(run.held.iter().copied());
    commands.filter_map(|command| run.calls.get(&command))
}

/// Calls that may fail for good with this turn.
fn failed<'r>(run: &'r Run, turn: &Turn) -> Vec<&'r OpenCall> {
    let told = run.messages.iter().take(turn.consumed).filter_map(failed_call);
    told.chain(run.held.iter().copied()).filter_map(|command| run.calls.get(&command)).collect()
}

/// Bytes of what is kept of a call in a page.
fn open_bytes(call: &OpenCall) -> usize {
    const FIXED: usize = 160;
    let dispatch = &call.dispatch;
    let texts = [dispatch.target.as_deref(), dispatch.reason.as_deref(), dispatch.status.as_deref()];
    FIXED
        + dispatch.activity.len()
        + dispatch.step.len()
        + past_bytes(call)
        + texts.into_iter().flatten().map(str::len).sum::<usize>()
}

fn failed_call(message: &Message) -> Option<CommandId> {
    match message {
        Message::ActivityFailed { command, .. } | Message::ActivityDeferred { command, .. } => Some(*command),
        _ => None,
    }
}

/// Bytes that are written if a message from here is refused.
fn given_up_with(from: &From) -> usize {
    match from {
        From::Routed(_, routed) => given_up_bytes(routed),
        _ => 0,
    }
}

/// Bytes of a call's record, if it is open.
fn input_bytes(run: &Run, command: CommandId) -> usize {
    let Some(call) = run.calls.get(&command) else { return 0 };
    let texts = call.dispatch.activity.len() + call.dispatch.step.len();
    call.bytes + texts + past_bytes(call) + ROW_BYTES + names_of(run)
}

/// Bytes of what is kept of a call's deliveries, the one that is out included.
fn past_bytes(call: &OpenCall) -> usize {
    (call.dispatch.past.len() + 1) * PastDelivery::BYTES_MAX
}
