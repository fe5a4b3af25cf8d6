//! The calls of runs, as people ask for them: open ones from their records, settled ones from the pages of their runs.
//!
//! A call is settled in the commit that takes its record away, so whoever reads the records first and the pages then misses none; one that is
//! settled in between is met twice. Every step examines a bounded number of rows. Does not know which calls are wanted, nor how they are shown.

use std::collections::BTreeMap;
use std::ops::Bound;

use abide_store::rows::{Partition, Passed, PrivateRows, Row, Scan, StoreError, scan_past_damage};
use abide_store::tables::dispatches::{self, Dispatch};
use abide_store::tables::pages::{self, Page, Trouble};
use abide_store::tables::{TableError, decode};
use abide_workflow::{CommandId, InstanceId, RunNumber};

use super::journaled::JournaledCall;
use super::task_events::{TaskEvent, task_events};
use super::{NumberedRun, RunReader, ShowError};

/// Reads the calls of one partition's runs.
#[derive(Debug)]
pub struct CallReader<'r, S> {
    /// Reads runs.
    pub reader: RunReader<'r, S>,
    /// Where they lie.
    pub partition: &'r Partition,
}

/// The place of an open call in its partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpenPlace {
    /// The number the shard gave the run.
    pub run: u64,
    /// The call's key.
    pub key: [u8; 32],
}

/// Some records, in order; nothing in place of one that cannot be read.
#[derive(Debug, Default)]
pub struct OpenCalls {
    /// Each with its place.
    pub calls: Vec<(OpenPlace, Option<JournaledCall>)>,
    /// Whether there may be more.
    pub more: bool,
}

/// The place of a settled call in its run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SettledPlace {
    /// The page.
    pub page: u64,
    /// Calls of the page that come before it.
    pub call: u32,
}

impl SettledPlace {
    /// Before all of them.
    pub const FIRST: Self = Self { page: 1, call: 0 };
}

/// Some settled calls of a run, in the order in which they were settled.
#[derive(Debug)]
pub struct SettledCalls {
    /// Each with its place.
    pub calls: Vec<(SettledPlace, JournaledCall)>,
    /// Pages that were examined.
    pub pages: usize,
    /// Where to go on, if there may be more.
    pub next: Option<SettledPlace>,
}

impl<S: PrivateRows> CallReader<'_, S> {
    /// A run of an instance, the current one unless another is asked for; none if it was forgotten, or never was.
    pub async fn run(
        &self,
        id: &InstanceId,
        asked: Option<RunNumber>,
    ) -> Result<Option<NumberedRun>, ShowError> {
        self.reader.numbered(self.partition, id, asked).await
    }

    /// Open calls of all runs, or of one, after a place. What is damaged is passed by: whose it is is told where runs are.
    pub async fn open(
        &self,
        run: Option<u64>,
        after: Option<OpenPlace>,
        rows_max: usize,
    ) -> Result<OpenCalls, StoreError> {
        let mut scan = run.map_or_else(dispatches::all, dispatches::of_run);
        if let Some(OpenPlace { run, key }) = after {
            scan = Scan { from: Bound::Excluded(dispatches::key(run, &key)), ..scan };
        }
        let mut found = OpenCalls::default();
        let mut next = Some(scan.at_most(rows_max));
        while let Some(scan) = next.filter(|_| found.calls.is_empty()) {
            let Passed { page, .. } = scan_past_damage(self.reader.store, self.partition, scan).await?;
            for row in &page.rows {
                let Ok((run, key)) = dispatches::read_key(&row.key) else { continue };
                let call = decode(&row.value).ok().map(|dispatch| JournaledCall::of_record(key, dispatch));
                found.calls.push((OpenPlace { run, key }, call));
            }
            found.more = page.next.is_some();
            next = page.next;
        }
        Ok(found)
    }

    /// The open call of a run with this key.
    pub async fn open_call(
        &self,
        run: &NumberedRun,
        key: [u8; 32],
    ) -> Result<Option<JournaledCall>, ShowError> {
        let row = self.reader.store.read(self.partition, &dispatches::key(run.number, &key)).await?;
        let dispatch: Result<Option<Dispatch>, _> = row.map(|row| decode(&row.value)).transpose();
        let dispatch = dispatch.map_err(|error: TableError| ShowError::unreadable(error.to_string()))?;
        Ok(dispatch.map(|dispatch| JournaledCall::of_record(key, dispatch)))
    }

    /// Settled calls of a run from a place on, from at most so many pages.
    pub async fn settled(
        &self,
        run: &NumberedRun,
        from: SettledPlace,
        pages_max: usize,
    ) -> Result<SettledCalls, ShowError> {
        let (pages, next) = self.pages(run, from.page, pages_max).await?;
        let (mut calls, examined) = (Vec::new(), pages.len());
        for (number, page) in pages {
            let skipped = if number == from.page { from.call } else { 0 };
            let mut troubled: BTreeMap<u32, Trouble> = page.troubled.into_iter().collect();
            for (call, settled) in (0..).zip(page.settled).skip(skipped as usize) {
                let trouble = troubled.remove(&call).unwrap_or_default();
                let settled = JournaledCall::of_settled(run, settled, trouble, page.at);
                calls.push((SettledPlace { page: number, call }, settled));
            }
        }
        Ok(SettledCalls { calls, pages: examined, next: next.map(|page| SettledPlace { page, call: 0 }) })
    }

    /// What the history tells of a call, from at most so many pages from this one on; and the page to go on with.
    pub async fn told(
        &self,
        run: &NumberedRun,
        command: CommandId,
        from_page: u64,
        pages_max: usize,
    ) -> Result<(Vec<TaskEvent>, Option<u64>), ShowError> {
        let (pages, next) = self.pages(run, from_page, pages_max).await?;
        let mut told = Vec::new();
        for (number, page) in pages {
            let events = task_events(&page, command);
            told.extend(events.map_err(|error| ShowError::unreadable(format!("page {number}: {error}")))?);
        }
        Ok((told, next))
    }

    /// Pages with their numbers, and the number of the first that is left, if one may be. Nothing is passed by.
    async fn pages(
        &self,
        run: &NumberedRun,
        from: u64,
        pages_max: usize,
    ) -> Result<(Vec<(u64, Page)>, Option<u64>), ShowError> {
        let scan = pages::after(run.number, from.saturating_sub(1)).at_most(pages_max.max(1));
        let Passed { page, damage } = scan_past_damage(self.reader.store, self.partition, scan).await?;
        if let Some(damage) = damage {
            return Err(ShowError::unreadable(damage.to_string()));
        }
        let read = |row: &Row| -> Result<(u64, Page), TableError> {
            Ok((pages::read_key(&row.key)?.1, decode(&row.value)?))
        };
        let pages: Result<Vec<_>, _> = page.rows.iter().map(read).collect();
        let pages = pages.map_err(|error| ShowError::unreadable(error.to_string()))?;
        let last = pages.last().map(|(number, _)| *number);
        Ok((pages, last.filter(|_| page.next.is_some()).map(|last| last.saturating_add(1))))
    }
}
