//! Reads the calls of runs for clients: open calls from their records, settled calls from the history pages of their
//! runs.
//!
//! A call is settled in the commit that deletes its record. A reader that reads first the records and then the pages
//! therefore misses no call, but sees a call twice that is settled in between. Every step examines a bounded number of
//! rows. Filtering and presentation of calls are not done here.

use std::collections::BTreeMap;
use std::ops::Bound;

use abide_ids::{IdempotencyKey, PageNumber, RunId};
use abide_store::rows::{Partition, PrivateRows, Row, Scan, StoreError, TolerantPage, scan_past_damage};
use abide_store::tables::calls::{self, CallRow};
use abide_store::tables::history_pages::{self, CallFailures, HistoryPageRow};
use abide_store::tables::{TableError, decode};
use abide_workflow::{CommandId, InstanceId, RunNumber};

use super::call_record::CallRecord;
use super::task_events::{TaskEvent, task_events};
use super::{RunReadError, RunReader, RunRef};

/// Reads the calls of one partition's runs.
#[derive(Debug)]
pub struct CallReader<'r, S> {
    pub run_reader: RunReader<'r, S>,
    pub partition: &'r Partition,
}

/// The position of an open call in its partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpenCallCursor {
    pub run_id: RunId,
    /// The call's idempotency key.
    pub key: IdempotencyKey,
}

/// A page of call records, in order.
#[derive(Debug, Default)]
pub struct OpenCallsPage {
    /// Each with its position; no record if it cannot be read.
    pub calls: Vec<(OpenCallCursor, Option<CallRecord>)>,
    /// True if there may be more.
    pub has_more: bool,
}

/// The position of a settled call in its run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SettledCallCursor {
    pub page: PageNumber,
    /// The number of calls of the page before this one.
    pub call_offset: u32,
}

impl SettledCallCursor {
    /// Before the first call.
    pub const FIRST: Self = Self { page: PageNumber::FIRST, call_offset: 0 };
}

/// A part of the settled calls of a run, in the order in which they were settled.
#[derive(Debug)]
pub struct SettledCallsPage {
    /// Each with its position.
    pub calls: Vec<(SettledCallCursor, CallRecord)>,
    /// The number of history pages read.
    pub pages_read: usize,
    /// The position to continue from, if there may be more.
    pub next: Option<SettledCallCursor>,
}

impl<S: PrivateRows> CallReader<'_, S> {
    /// The run with this number, or the current run. None if it was deleted or never existed.
    pub async fn find_run(
        &self,
        id: &InstanceId,
        run_number: Option<RunNumber>,
    ) -> Result<Option<RunRef>, RunReadError> {
        self.run_reader.find_run(self.partition, id, run_number).await
    }

    /// Open calls of all runs or of one, after a position. Ranges that the store cannot read are skipped: damage is
    /// reported for the run that it affects. A row that cannot be decoded is returned without a record.
    pub async fn open_calls(
        &self,
        run: Option<RunId>,
        after: Option<OpenCallCursor>,
        rows_max: usize,
    ) -> Result<OpenCallsPage, StoreError> {
        let mut scan = run.map_or_else(calls::all, calls::of_run);
        if let Some(OpenCallCursor { run_id: run, key }) = after {
            scan = Scan { from: Bound::Excluded(calls::key(run, &key)), ..scan };
        }
        let mut open = OpenCallsPage::default();
        let mut next = Some(scan.limit(rows_max));
        while let Some(scan) = next.filter(|_| open.calls.is_empty()) {
            let TolerantPage { page, .. } =
                scan_past_damage(self.run_reader.store, self.partition, scan).await?;
            for row in &page.rows {
                let Ok((run, key)) = calls::read_key(&row.key) else { continue };
                let call = decode(&row.value).ok().map(|row| CallRecord::from_row(key, row));
                open.calls.push((OpenCallCursor { run_id: run, key }, call));
            }
            open.has_more = page.next.is_some();
            next = page.next;
        }
        Ok(open)
    }

    /// The open call of a run with this idempotency key. If there is none, it may have been settled by now: look for it
    /// among the settled calls next.
    pub async fn open_call(
        &self,
        run: &RunRef,
        key: IdempotencyKey,
    ) -> Result<Option<CallRecord>, RunReadError> {
        let row = self.run_reader.store.read(self.partition, &calls::key(run.run_id, &key)).await?;
        let call: Result<Option<CallRow<'static>>, _> = row.map(|row| decode(&row.value)).transpose();
        let call = call.map_err(|error: TableError| RunReadError::unreadable(error.to_string()))?;
        Ok(call.map(|call| CallRecord::from_row(key, call)))
    }

    /// Settled calls of a run from a position on, from at most `pages_max` history pages.
    pub async fn settled_calls(
        &self,
        run: &RunRef,
        from: SettledCallCursor,
        pages_max: usize,
    ) -> Result<SettledCallsPage, RunReadError> {
        let (pages, next) = self.pages(run, from.page, pages_max).await?;
        let mut calls = Vec::new();
        let pages_read = pages.len();
        for (number, page) in pages {
            let skipped = if number == from.page { from.call_offset } else { 0 };
            let mut failures: BTreeMap<u32, CallFailures> = page.call_failures.into_iter().collect();
            for (call, settled) in (0..).zip(page.settled_calls).skip(skipped as usize) {
                let call_failures = failures.remove(&call).unwrap_or_default();
                let settled = CallRecord::from_settled(run, settled, call_failures, page.turn_at);
                calls.push((SettledCallCursor { page: number, call_offset: call }, settled));
            }
        }
        Ok(SettledCallsPage {
            calls,
            pages_read,
            next: next.map(|page| SettledCallCursor { page, call_offset: 0 }),
        })
    }

    /// The history events of a call, from at most `pages_max` pages starting with `from_page`, and the page to
    /// continue with.
    pub async fn call_events(
        &self,
        run: &RunRef,
        command: CommandId,
        from_page: PageNumber,
        pages_max: usize,
    ) -> Result<(Vec<TaskEvent>, Option<PageNumber>), RunReadError> {
        let (pages, next) = self.pages(run, from_page, pages_max).await?;
        let mut call_events = Vec::new();
        for (number, page) in pages {
            let events = task_events(&page, command);
            call_events.extend(
                events
                    .map_err(|error| RunReadError::unreadable(format!("history page {number}: {error}")))?,
            );
        }
        Ok((call_events, next))
    }

    /// Pages with their numbers, and the number of the page to continue with, if there may be one. A damaged page is an
    /// error, never skipped.
    async fn pages(
        &self,
        run: &RunRef,
        from: PageNumber,
        pages_max: usize,
    ) -> Result<(Vec<(PageNumber, HistoryPageRow)>, Option<PageNumber>), RunReadError> {
        let scan = history_pages::after_page(run.run_id, from.previous()).limit(pages_max.max(1));
        let TolerantPage { page, damage } =
            scan_past_damage(self.run_reader.store, self.partition, scan).await?;
        if let Some(damage) = damage {
            return Err(RunReadError::unreadable(damage.to_string()));
        }
        let read = |row: &Row| -> Result<(PageNumber, HistoryPageRow), TableError> {
            Ok((history_pages::read_key(&row.key)?.1, decode(&row.value)?))
        };
        let pages: Result<Vec<_>, _> = page.rows.iter().map(read).collect();
        let pages = pages.map_err(|error| RunReadError::unreadable(error.to_string()))?;
        let last = pages.last().map(|(number, _)| *number);
        Ok((pages, last.filter(|_| page.next.is_some()).map(PageNumber::next)))
    }
}
