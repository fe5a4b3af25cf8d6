//! A run of three tasks as rows for the benchmark of the store: the real turns of the core, put into rows by hand as the runtime does, four commits. What the
//! runtime itself writes is counted by its own tests.
//!
//! One row per turn: the page has the turn's history and the parts it changed. No timer rows for deadlines of calls in flight, and
//! the public table is fed at the start and at the end only. Not counted: deleting the two rows of the feed, which rides in later commits
//! of the shard, and a kept answer for starts with an idempotency key.

use abide_store::rows::{Batch, Key, Version};
use abide_store::tables::dispatches::{Dispatch, DispatchInput, DispatchState};
use abide_store::tables::heads::{CommitId, Head};
use abide_store::tables::instances::{Instance as InstanceRow, RunStatus};
use abide_store::tables::outbox::Outgoing;
use abide_store::tables::pages::Page;
use abide_store::tables::public_instances::PublicInstance;
use abide_store::tables::{dispatches, encode, heads, instances, outbox, pages};
use abide_workflow::command::{Command, CommandKind};
use abide_workflow::{CommandId, Limits, Message, Timestamp, Turn, advance};
use serde_json::json;

use crate::{compile, pending, three_tasks};

/// The rows of one commit beside the head: key → value, or `None` to delete.
pub type Rows = Vec<(Key, Option<Vec<u8>>)>;

/// The four commits of a run that has this number in its shard.
pub fn commits(run: u64) -> Vec<Rows> {
    let (plan, limits) = (compile(&three_tasks()), Limits::default());
    let mut instance = pending(&plan, json!({"id": "dev-1"}));
    let mut called: Option<(Key, Dispatch)> = None;
    let mut first_event = 1;
    let mut all = Vec::new();
    for number in 0..4u64 {
        let inbox = called.as_ref().map(|(_, call)| Message::ActivityCompleted {
            command: CommandId(call.command),
            result: json!({"ok": true, "id": "r-1"}).into(),
        });
        let Ok(turn) = advance(&plan, &mut instance, inbox.as_slice(), Timestamp(NOW), &limits) else {
            return all;
        };
        let mut rows: Rows = vec![page(run, number + 1, first_event, &turn)];
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
            rows.push(instance_row(run, number + 1, status));
            let feed = Outgoing { created_at: NOW, message: public_row(run, number, status) };
            rows.push((outbox::key(outbox::PUBLIC, run * 4 + number), Some(encode(&feed))));
        }
        all.push(rows);
    }
    all
}

/// A commit of these rows under a head.
pub fn batch(rows: Rows, expect: Option<Version>, sequence: u64) -> Batch {
    let head = Head {
        owner: "node-0198c2a4-7d31-7a52-9c6f-2f3d8a1b4c5e".to_owned(),
        fencing_token: 3,
        heartbeat: sequence,
        last_commit: CommitId(u128::from(sequence) << 64),
        last_sequence: sequence,
    };
    let batch = Batch::fenced(heads::key(), expect, encode(&head));
    rows.into_iter().fold(batch, |batch, (key, value)| match value {
        Some(value) => batch.put(key, value),
        None => batch.delete(key),
    })
}

const NOW: i64 = 1_790_000_000_000;

fn page(run: u64, turn_number: u64, first_event: u64, turn: &Turn) -> (Key, Option<Vec<u8>>) {
    let changes = turn.changes.iter().map(|change| (change.key.to_bytes(), change.value.clone()));
    let page = Page {
        first_event,
        events_count: u32::try_from(turn.history.len()).unwrap_or(u32::MAX),
        at: NOW,
        events: serde_json::to_vec(&turn.history).unwrap_or_default(),
        changes: changes.collect(),
        troubled: Vec::new(),
        settled: Vec::new(),
    };
    (pages::key(run, turn_number), Some(encode(&page)))
}

fn dispatch(run: u64, command: &Command) -> Option<(Key, Dispatch)> {
    let CommandKind::StartActivity(start) = &command.kind else { return None };
    let call = Dispatch {
        instance_id: format!("0198c2a4-7d31-7a52-9c6f-{run:012x}"),
        run_number: 1,
        correlation_id: "0198c2a4-7d31-7a52-9c6f-2f3d8a1b4c5e".to_owned(),
        command: command.id.0,
        activity: start.activity.clone(),
        step: "A".to_owned(),
        parent_item: None,
        state: DispatchState::Sent,
        attempt: 0,
        unanswered: 0,
        fencing_token: 3,
        created_at: NOW,
        sent_at: NOW,
        deadline_at: start.deadline.map(|at| at.0),
        attempt_timeout_ms: 10_000,
        target: None,
        first_failure_at: None,
        status: None,
        may_have_run: false,
        unsent: false,
        past: Vec::new(),
        not_before: None,
        reason: None,
        secrets: Vec::new(),
        input: DispatchInput::Inline(serde_json::to_vec(&*start.input).unwrap_or_default()),
    };
    let mut idempotency_key = [7; 32];
    idempotency_key.iter_mut().zip(command.id.0.to_be_bytes()).for_each(|(to, from)| *to = from);
    Some((dispatches::key(run, &idempotency_key), call))
}

fn public_row(run: u64, revision: u64, status: RunStatus) -> Vec<u8> {
    let id = format!("0198c2a4-7d31-7a52-9c6f-{run:012x}");
    let row = PublicInstance {
        execution_id: format!("{id}:1"),
        instance_id: id,
        run_number: 1,
        workflow: "device-onboarding".to_owned(),
        version: "1.0.0".to_owned(),
        status: format!("{status:?}"),
        correlation_id: "0198c2a4-7d31-7a52-9c6f-2f3d8a1b4c5e".to_owned(),
        entity_id: None,
        created_at: NOW,
        updated_at: NOW,
        error: None,
    };
    serde_json::to_vec(&row.to_row(revision)).unwrap_or_default()
}

fn instance_row(run: u64, last_turn: u64, status: RunStatus) -> (Key, Option<Vec<u8>>) {
    let row = InstanceRow {
        run,
        run_number: 1,
        status,
        definition: "device-onboarding".to_owned(),
        version: "1.0.0".to_owned(),
        definition_hash: [9; 32],
        folded_turn: 0,
        last_turn,
        created_at: NOW,
        updated_at: NOW,
        correlation_id: "0198c2a4-7d31-7a52-9c6f-2f3d8a1b4c5e".to_owned(),
        entity_id: None,
        parked: None,
        parent: None,
        parent_item: None,
    };
    (instances::key(&format!("0198c2a4-7d31-7a52-9c6f-{run:012x}")), Some(encode(&row)))
}
