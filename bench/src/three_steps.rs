//! A run of three tasks as rows for the benchmark of the store: the real turns of the workflow core, converted to rows
//! by hand as the runtime does, in four commits. The runtime's own tests count what the runtime itself writes.
//!
//! There is one history page per turn, with the turn's events and the parts it changed. There are no timer rows for the
//! deadlines of calls in flight, and the public table is written at the start and at the end only. Two things are not
//! counted: the deletion of the two outbox rows for the public index, which is part of later commits of the shard, and
//! the idempotency record of a start with a key.

use std::borrow::Cow;

use abide_ids::{Digest, IdempotencyKey, PageNumber, RunId, RunNumber};
use abide_store::rows::{Batch, Key, RowVersion};
use abide_store::tables::calls::{CallInput, CallRow, CallRowState};
use abide_store::tables::heads::{CommitId, HeadRow};
use abide_store::tables::history_pages::HistoryPageRow;
use abide_store::tables::instances::{InstanceRow, RunStatus};
use abide_store::tables::outbox::OutboxRow;
use abide_store::tables::public_instances::PublicInstanceRow;
use abide_store::tables::{calls, encode, heads, history_pages, instances, outbox};
use abide_workflow::command::{Command, CommandKind};
use abide_workflow::{Limits, Message, Timestamp, Turn, advance};
use serde_json::json;

use crate::{compile, pending, three_tasks};

/// The rows of one commit besides the head: key → value, or `None` to delete.
pub type Rows = Vec<(Key, Option<Vec<u8>>)>;

/// The four commits of a run with this run id.
pub fn commits(run: u64) -> Vec<Rows> {
    let plan = compile(&three_tasks());
    let limits = Limits::default();
    let mut instance = pending(&plan, json!({"id": "dev-1"}));
    let mut called: Option<(Key, CallRow<'static>)> = None;
    let mut first_event = 1;
    let mut all = Vec::new();
    for number in 0..4u64 {
        let inbox = called.as_ref().map(|(_, call)| Message::ActivityCompleted {
            command: call.command,
            result: json!({"ok": true, "id": "r-1"}).into(),
        });
        let Ok(turn) = advance(&plan, &mut instance, inbox.as_slice(), NOW, &limits) else {
            return all;
        };
        let mut rows: Rows = vec![page(run, PageNumber(number + 1), first_event, &turn)];
        first_event += turn.history.len() as u64;
        if let Some((key, _)) = called.take() {
            rows.push((key, None));
        }
        if let Some(call) = turn.commands.iter().find_map(|command| dispatch(run, command)) {
            rows.push((call.0.clone(), Some(encode(&call.1))));
            called = Some(call);
        }
        if number == 0 || number == 3 {
            let status = if number == 0 { RunStatus::Running } else { RunStatus::Completed };
            rows.push(instance_row(run, PageNumber(number + 1), status));
            let index_row = OutboxRow { created_at: NOW, message: public_row(run, number, status) };
            rows.push((
                outbox::key(outbox::PUBLIC_INDEX_TARGET, abide_ids::Sequence(run * 4 + number)),
                Some(encode(&index_row)),
            ));
        }
        all.push(rows);
    }
    all
}

/// A commit of these rows with a head.
pub fn batch(rows: Rows, expect: Option<RowVersion>, sequence: u64) -> Batch {
    let head = HeadRow {
        owner: Some("node-0198c2a4-7d31-7a52-9c6f-2f3d8a1b4c5e".to_owned()),
        fencing_token: 3,
        heartbeat: sequence,
        last_commit: CommitId(u128::from(sequence) << 64),
        last_sequence: abide_ids::Sequence(sequence),
        retention_ms: 604_800_000,
        unclean_claims: 0,
        marked_instance: None,
    };
    let batch = Batch::fenced(heads::key(), expect, encode(&head));
    rows.into_iter().fold(batch, |batch, (key, value)| match value {
        Some(value) => batch.put(key, value),
        None => batch.delete(key),
    })
}

const NOW: Timestamp = Timestamp(1_790_000_000_000);

fn page(run: u64, turn_number: PageNumber, first_event: u64, turn: &Turn) -> (Key, Option<Vec<u8>>) {
    let changes = turn.changes.iter().map(|change| (change.key.to_bytes(), change.value.clone()));
    let page = HistoryPageRow {
        first_event,
        event_count: u32::try_from(turn.history.len()).unwrap_or(u32::MAX),
        turn_at: NOW,
        events: serde_json::to_vec(&turn.history).unwrap_or_default(),
        part_changes: changes.collect(),
        call_failures: Vec::new(),
        settled_calls: Vec::new(),
    };
    (history_pages::key(RunId(run), turn_number), Some(encode(&page)))
}

fn dispatch(run: u64, command: &Command) -> Option<(Key, CallRow<'static>)> {
    let CommandKind::StartActivity(start) = &command.kind else { return None };
    let call = CallRow {
        instance_id: format!("0198c2a4-7d31-7a52-9c6f-{run:012x}").into(),
        run_number: RunNumber::FIRST,
        correlation_id: "0198c2a4-7d31-7a52-9c6f-2f3d8a1b4c5e".into(),
        command: command.id,
        activity: start.activity.clone().into(),
        step: "A".into(),
        parent_item_key: None,
        state: CallRowState::Sent,
        attempt: 0,
        unanswered_attempts: 0,
        fencing_token: 3,
        created_at: NOW,
        sent_at: NOW,
        deadline_at: start.deadline,
        attempt_timeout_ms: 10_000,
        target: None,
        first_failure_at: None,
        failure_status: None,
        may_have_run: false,
        last_attempt_unsent: false,
        past_attempts: Cow::default(),
        hold: None,
        not_before: None,
        failure_reason: None,
        secret_pointers: Cow::default(),
        input: CallInput::Inline(serde_json::to_vec(&*start.input).unwrap_or_default()),
    };
    let mut idempotency_key = [7; 32];
    idempotency_key.iter_mut().zip(command.id.0.to_be_bytes()).for_each(|(to, from)| *to = from);
    Some((calls::key(RunId(run), &IdempotencyKey(idempotency_key)), call))
}

fn public_row(run: u64, revision: u64, status: RunStatus) -> Vec<u8> {
    let id = format!("0198c2a4-7d31-7a52-9c6f-{run:012x}");
    let row = PublicInstanceRow {
        execution_id: format!("{id}:1"),
        instance_id: id,
        run_number: RunNumber::FIRST,
        workflow: "device-onboarding".to_owned(),
        version: "1.0.0".to_owned(),
        status: format!("{status:?}"),
        correlation_id: "0198c2a4-7d31-7a52-9c6f-2f3d8a1b4c5e".to_owned(),
        entity_id: None,
        created_at: NOW,
        updated_at: NOW,
        error: None,
    };
    serde_json::to_vec(&row.to_public_row(revision)).unwrap_or_default()
}

fn instance_row(run: u64, last_turn: PageNumber, status: RunStatus) -> (Key, Option<Vec<u8>>) {
    let row = InstanceRow {
        run_id: RunId(run),
        run_number: RunNumber::FIRST,
        status,
        definition_id: "device-onboarding".to_owned(),
        version: "1.0.0".to_owned(),
        definition_hash: Digest([9; 32]),
        folded_page: PageNumber::ZERO,
        last_page: last_turn,
        created_at: NOW,
        updated_at: NOW,
        correlation_id: "0198c2a4-7d31-7a52-9c6f-2f3d8a1b4c5e".to_owned(),
        entity_id: None,
        park_reason: None,
        parent: None,
        parent_item_key: None,
        lineage: None,
        entity_type: None,
    };
    (instances::key(&format!("0198c2a4-7d31-7a52-9c6f-{run:012x}")), Some(encode(&row)))
}
