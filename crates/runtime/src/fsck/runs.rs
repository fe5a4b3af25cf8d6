//! Checks every current run by itself: its status agrees with its history, and something will wake it if it is live.
//!
//! Links to other runs are only collected here, and checked when all shards are read.

use abide_ids::{PageNumber, RunId};
use abide_store::rows::{PrivateRows, TolerantPage, scan_past_damage};
use abide_store::tables::calls::CallRowState;
use abide_store::tables::instances::RunStatus;
use abide_store::tables::timers::TimerKey;
use abide_store::tables::{decode, history_pages};
use abide_workflow::Status;
use abide_workflow::instance::WaitingFor;

use super::children::{AwaitedChild, EndMessageKey};
use super::{CheckedRun, FsckError, ShardCheck};
use crate::run::StoredRun;
use crate::run::run_status::row_status;

impl<S: PrivateRows> ShardCheck<'_, S> {
    /// Checks the current run of an instance, after all rows of its shard. Counts it if it is live. A suspended or
    /// parked run needs nothing that will wake it.
    pub(super) async fn check_run(&mut self, run_id: RunId, run: &CheckedRun) -> Result<(), FsckError> {
        let Some(stored) = &run.stored else { return Ok(()) };
        let status = stored.instance.status();
        if stored.row.status != RunStatus::Parked && row_status(status) != stored.row.status {
            let row = stored.row.status;
            self.add_finding(
                Some(&run.id),
                format!("the instance row has status {row:?}, the run has {status}"),
            );
        }
        self.check_history(run_id, run, status).await?;
        for timer in stored.bookkeeping.timer_rows(run_id) {
            if !run.timers.contains(&timer) {
                let TimerKey { purpose, command, .. } = timer;
                let command = command.map(|command| format!(" {command}")).unwrap_or_default();
                self.add_finding(Some(&run.id), format!("timer {purpose:?}{command} has no row"));
            }
        }
        if status.is_terminal() {
            return Ok(());
        }
        self.report.live += 1;
        self.children.live_instances.insert(run.id.clone());
        if status == Status::Suspended || stored.row.status == RunStatus::Parked {
            return Ok(());
        }
        if status == Status::Pending && run.continue_messages == 0 {
            self.add_finding(Some(&run.id), "the run has not started, and nothing will wake it");
        }
        for timer in stored.instance.open_timers() {
            if !stored.bookkeeping.timers.contains_key(&timer) {
                self.add_finding(Some(&run.id), format!("waits for timer {timer}, which was never set"));
            }
        }
        for current in stored.instance.current_states(&stored.plan) {
            self.check_branch(run, stored, &current.state, &current.waiting_for);
        }
        Ok(())
    }

    /// Checks that something will end the wait of a branch. An awaited child may be on another shard, so it is only
    /// noted.
    fn check_branch(&mut self, run: &CheckedRun, stored: &StoredRun, state: &str, waiting: &WaitingFor) {
        let problem = match waiting {
            WaitingFor::Activity { call: command, .. } => {
                let call = stored.calls.iter().find(|(_, call)| call.command == *command);
                match call.map(|(_, call)| (call.state, call.not_before)) {
                    None => format!("{state} waits for call {command}, which has no record"),
                    // A run with a message to continue may not have processed the result yet.
                    Some((CallRowState::FailedRetryable, None)) if run.continue_messages == 0 => {
                        format!("{state} waits for call {command}, which failed and has no retry scheduled")
                    }
                    Some(_) => return,
                }
            }
            WaitingFor::Child { child } => {
                let Some(id) = stored.bookkeeping.children.get(child) else {
                    return self.add_finding(
                        Some(&run.id),
                        format!("{state} waits for child {child}, which was never started"),
                    );
                };
                let (parent_id, parent_run) = (run.id.clone(), stored.row.run_number);
                let end_message = EndMessageKey { parent_id, parent_run, command: *child };
                let awaited = AwaitedChild { instance_id: id.as_str().to_owned(), end_message };
                self.children.awaited.insert(awaited, self.shard);
                return;
            }
            WaitingFor::Nothing if run.continue_messages == 0 => {
                format!("{state} is ready, and nothing will wake it")
            }
            // Timers are checked with the run; an event may arrive at any time.
            WaitingFor::Timer { .. } | WaitingFor::Event { .. } => return,
            WaitingFor::Nothing | WaitingFor::Branches { .. } => return,
        };
        self.add_finding(Some(&run.id), problem);
    }

    /// Checks that pages and events have no gaps, and that the last event about the status agrees with it.
    async fn check_history(
        &mut self,
        run_id: RunId,
        run: &CheckedRun,
        status: Status,
    ) -> Result<(), FsckError> {
        let mut page_number = PageNumber::ZERO;
        let mut event_number = 0;
        let mut last = String::new();
        let mut next = Some(history_pages::of_run(run_id));
        while let Some(scan) = next {
            let TolerantPage { page: scanned, damage } =
                scan_past_damage(self.reader.store, &self.partition, scan).await?;
            if damage.is_some() {
                // Damage is reported with the rows; the rest of the history cannot be checked.
                return Ok(());
            }
            for row in scanned.rows {
                let (Ok((_, number)), Ok(page)) =
                    (history_pages::read_key(&row.key), decode::<history_pages::HistoryPageRow>(&row.value))
                else {
                    self.add_finding(Some(&run.id), format!("unreadable history page {}", row.key));
                    return Ok(());
                };
                if number != page_number.next() {
                    self.add_finding(
                        Some(&run.id),
                        format!("history page {number} follows page {page_number}"),
                    );
                }
                page_number = number;
                let events: Vec<serde_json::Value> = serde_json::from_slice(&page.events).unwrap_or_default();
                for event in events {
                    let sequence = event.get("sequence").and_then(serde_json::Value::as_u64).unwrap_or(0);
                    if sequence != event_number + 1 {
                        self.add_finding(
                            Some(&run.id),
                            format!("history event {sequence} follows event {event_number}"),
                        );
                    }
                    event_number = sequence;
                    let event_type =
                        event.get("eventType").and_then(serde_json::Value::as_str).unwrap_or_default();
                    if event_type.starts_with("Execution") || event_type == "ContinueAsNew" {
                        event_type.clone_into(&mut last);
                    }
                }
            }
            next = scanned.next;
        }
        let agrees = match last.as_str() {
            "ExecutionCompleted" => status == Status::Completed,
            "ExecutionFailed" => status == Status::Failed,
            "ExecutionTerminated" => status == Status::Terminated,
            "ContinueAsNew" => status == Status::ContinuedAsNew,
            "ExecutionSuspended" => status == Status::Suspended,
            _ => !status.is_terminal(),
        };
        if !agrees {
            self.add_finding(
                Some(&run.id),
                format!("the run has status {status}, but its history ends with {last}"),
            );
        }
        Ok(())
    }
}
