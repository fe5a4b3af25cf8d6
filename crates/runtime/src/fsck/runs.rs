//! Every live run by itself: its status is its history's, and something will move it.

use abide_store::rows::{Passed, PrivateRows, scan_past_damage};
use abide_store::tables::dispatches::DispatchState;
use abide_store::tables::instances::RunStatus;
use abide_store::tables::timers::TimerKey;
use abide_store::tables::{decode, pages};
use abide_workflow::Status;
use abide_workflow::instance::WaitingFor;

use super::{Check, FsckError, Known};
use crate::run::StoredRun;

impl<S: PrivateRows> Check<'_, S> {
    pub(super) async fn run(&mut self, run: u64, known: &Known) -> Result<(), FsckError> {
        let Some(stored) = &known.stored else { return Ok(()) };
        let status = stored.instance.status();
        if stored.row.status != RunStatus::Parked && crate::shard::row_status(status) != stored.row.status {
            let row = stored.row.status;
            self.find(Some(&known.id), format!("its row says {row:?}, the run itself says {status}"));
        }
        self.history(run, known, status).await?;
        for timer in stored.book.timer_rows(run) {
            if !known.timers.contains(&timer) {
                let TimerKey { purpose, number, .. } = timer;
                self.find(Some(&known.id), format!("its timer {purpose:?} {number} has no row"));
            }
        }
        if status.is_terminal() {
            return Ok(());
        }
        self.report.live += 1;
        self.children.live.insert(known.id.clone());
        if status == Status::Suspended || stored.row.status == RunStatus::Parked {
            return Ok(());
        }
        if status == Status::Pending && known.notes == 0 {
            self.find(Some(&known.id), "it has not begun, and nothing will move it");
        }
        for timer in stored.instance.timers() {
            if !stored.book.timers.contains_key(&timer) {
                self.find(Some(&known.id), format!("it waits for timer {}, which was never set", timer.0));
            }
        }
        for standing in stored.instance.current_states(&stored.plan) {
            self.branch(known, stored, &standing.state, &standing.waiting_for);
        }
        Ok(())
    }

    fn branch(&mut self, known: &Known, stored: &StoredRun, state: &str, waiting: &WaitingFor) {
        let what = match waiting {
            WaitingFor::Activity { dispatch, .. } => {
                let call = stored.calls.iter().find(|call| call.dispatch.command == dispatch.0);
                match call.map(|call| (call.dispatch.state, call.dispatch.not_before)) {
                    None => format!("{state} waits for call {}, which has no record", dispatch.0),
                    // A run that goes on by itself may not have come to the answer yet.
                    Some((DispatchState::FailedRetryable, None)) if known.notes == 0 => {
                        format!("{state} waits for call {}, which failed and is not made again", dispatch.0)
                    }
                    Some(_) => return,
                }
            }
            WaitingFor::Child { child } => {
                let Some(id) = stored.book.children.get(child) else {
                    return self.find(
                        Some(&known.id),
                        format!("{state} waits for child {}, which was never started", child.0),
                    );
                };
                let answer = format!("{}/{}/{}", known.id, stored.row.run_number, child.0);
                let place = (self.shard, known.id.clone(), stored.row.run_number);
                self.children.awaited.insert(format!("{id}\n{answer}"), place);
                return;
            }
            WaitingFor::Nothing if known.notes == 0 => {
                format!("{state} is ready, and nothing will move it")
            }
            // Its timer is among those of the run; an event may come at any time.
            WaitingFor::Timer { .. } | WaitingFor::Event { .. } => return,
            WaitingFor::Nothing | WaitingFor::Branches { .. } => return,
        };
        self.find(Some(&known.id), what);
    }

    /// Pages and events without gaps, and an end that is the status.
    async fn history(&mut self, run: u64, known: &Known, status: Status) -> Result<(), FsckError> {
        let (mut page_number, mut event_number) = (0, 0);
        let mut last = String::new();
        let mut next = Some(pages::of_run(run));
        while let Some(scan) = next {
            let Passed { page: scanned, damage } =
                scan_past_damage(self.reader.store, &self.partition, scan).await?;
            if damage.is_some() {
                // Told with the rows; of the rest nothing can be said.
                return Ok(());
            }
            for row in scanned.rows {
                let (Ok((_, number)), Ok(page)) =
                    (pages::read_key(&row.key), decode::<pages::Page>(&row.value))
                else {
                    self.find(Some(&known.id), format!("page {} cannot be read", row.key));
                    return Ok(());
                };
                if number != page_number + 1 {
                    self.find(Some(&known.id), format!("page {number} follows page {page_number}"));
                }
                page_number = number;
                let events: Vec<serde_json::Value> = serde_json::from_slice(&page.events).unwrap_or_default();
                for event in events {
                    let sequence = event.get("sequence").and_then(serde_json::Value::as_u64).unwrap_or(0);
                    if sequence != event_number + 1 {
                        self.find(Some(&known.id), format!("event {sequence} follows event {event_number}"));
                    }
                    event_number = sequence;
                    let kind = event.get("eventType").and_then(serde_json::Value::as_str).unwrap_or_default();
                    if kind.starts_with("Execution") || kind == "ContinueAsNew" {
                        kind.clone_into(&mut last);
                    }
                }
            }
            next = scanned.next;
        }
        let said = match last.as_str() {
            "ExecutionCompleted" => status == Status::Completed,
            "ExecutionFailed" => status == Status::Failed,
            "ExecutionTerminated" => status == Status::Terminated,
            "ContinueAsNew" => status == Status::ContinuedAsNew,
            "ExecutionSuspended" => status == Status::Suspended,
            _ => !status.is_terminal(),
        };
        if !said {
            self.find(Some(&known.id), format!("it is {status}, but its history ends with {last}"));
        }
        Ok(())
    }
}
