//! Scans calls for one page of a list: the calls of one run, the open calls of all shards, or the settled calls of all
//! runs. Knows nothing about the JSON of calls.
//!
//! | filter | scanned, in this order |
//! |---|---|
//! | a run | its open calls by key, then its settled calls in the order of settling |
//! | no run, an open state or none | the open calls of each shard |
//! | no run, a settled state | the runs of the public table, newest first, and the settled calls of each |
//!
//! Each page examines a bounded number of records, pages and runs. Unreadable records of open calls are left out.
//! Otherwise unreadable data stops a list of one run, and skips the run in other lists.

use abide_ids::RunId;
use abide_runtime::node::RunReadError;
use abide_runtime::run::{CallReader, CallRecord, OpenCallCursor, RunRef, SettledCallCursor};
use abide_store::Store;
use abide_store::public::{PublicKey, PublicQuery, RowPosition};
use abide_store::tables::public_instances::{self, SCHEMA};
use abide_workflow::{Duration, InstanceId, RunNumber, Timestamp};

use super::cursor::CallCursor;
use super::item;
use crate::app::App;
use crate::error::ApiError;
use crate::rest::page::invalid_token;

/// Records of open calls examined for one page of a list.
const RECORDS_MAX: usize = 1_000;
/// History pages of runs examined for one page of a list.
const PAGES_MAX: usize = 500;
/// Runs examined for one page of a list.
const RUNS_MAX: usize = 100;
/// Rows read at once. A row may be large.
const SCAN_ROWS: usize = 50;

/// The conditions on calls. All must match.
#[derive(Debug, Default)]
pub(super) struct CallFilter {
    pub(super) execution: Option<(InstanceId, Option<RunNumber>)>,
    pub(super) state: Option<&'static str>,
    pub(super) activity: Option<String>,
    pub(super) older_than: Option<Duration>,
}

/// The scan for one page.
pub(super) struct CallQuery<'w, S> {
    app: &'w App<S>,
    filter: &'w CallFilter,
    limit: usize,
    /// A call must have been created at this time or earlier.
    created_until: Option<Timestamp>,
    records_left: usize,
    pages_left: usize,
    found: Vec<CallRecord>,
}

impl<'w, S: Store> CallQuery<'w, S> {
    pub(super) fn new(app: &'w App<S>, filter: &'w CallFilter, limit: usize) -> Self {
        let created_until = filter.older_than.map(|age| app.now().minus(age));
        Self {
            app,
            filter,
            limit,
            created_until,
            records_left: RECORDS_MAX,
            pages_left: PAGES_MAX,
            found: Vec::new(),
        }
    }

    /// The calls of the page that starts at `from`, and the start of the next page.
    pub(super) async fn page(
        mut self,
        from: Option<CallCursor>,
    ) -> Result<(Vec<CallRecord>, Option<CallCursor>), ApiError> {
        let next = match &self.filter.execution {
            Some((id, run)) => self.page_of_run(id, *run, from).await?,
            None if self.filter.state.is_none_or(item::is_open) => self.page_of_shards(from).await?,
            None => self.page_of_runs(from).await?,
        };
        Ok((self.found, next))
    }

    async fn page_of_run(
        &mut self,
        id: &InstanceId,
        requested_run: Option<RunNumber>,
        from: Option<CallCursor>,
    ) -> Result<Option<CallCursor>, ApiError> {
        let node = self.app.node();
        let Some(reader) = node.call_reader(node.shard_of_instance(id)) else { return Ok(None) };
        // A list continues in the run it started with, even if a newer run has replaced it.
        let (requested_run, after, at) = match from {
            None => (requested_run, None, None),
            Some(CallCursor::OpenOfRun { run, after }) => (Some(run), Some(after.into()), None),
            Some(CallCursor::SettledOfRun { run, at }) => (Some(run), None, Some(at.into())),
            Some(_) => return Err(invalid_token()),
        };
        let Some(run) = reader.find_run(id, requested_run).await? else { return Ok(None) };
        let number = run.run_number;
        if at.is_none()
            && self.filter.state.is_none_or(item::is_open)
            && let Some(after) = self.scan_open(&reader, Some(run.run_id), after).await?
        {
            return Ok(Some(CallCursor::OpenOfRun { run: number, after: after.into() }));
        }
        if self.filter.state.is_some_and(item::is_open) {
            return Ok(None);
        }
        let next = self.scan_settled(&reader, &run, at.unwrap_or(SettledCallCursor::FIRST)).await?;
        Ok(next.map(|at| CallCursor::SettledOfRun { run: number, at: at.into() }))
    }

    async fn page_of_shards(&mut self, from: Option<CallCursor>) -> Result<Option<CallCursor>, ApiError> {
        let (begin, mut after) = match from {
            None => (0, None),
            Some(CallCursor::OpenOfShard { shard, after }) => (shard, after.map(OpenCallCursor::from)),
            Some(_) => return Err(invalid_token()),
        };
        let node = self.app.node();
        for shard in node.shards().filter(|shard| shard.number() >= begin) {
            let after = after.take().filter(|_| shard.number() == begin);
            if self.is_full() || self.records_left == 0 {
                return Ok(Some(CallCursor::OpenOfShard { shard: shard.number(), after: None }));
            }
            let Some(reader) = node.call_reader(shard) else { continue };
            if let Some(after) = self.scan_open(&reader, None, after).await? {
                return Ok(Some(CallCursor::OpenOfShard {
                    shard: shard.number(),
                    after: Some(after.into()),
                }));
            }
        }
        Ok(None)
    }

    async fn page_of_runs(&mut self, from: Option<CallCursor>) -> Result<Option<CallCursor>, ApiError> {
        let (begin, mut at) = match from {
            None => (None, None),
            Some(CallCursor::SettledOfRuns { run, at }) => (Some(RowPosition::from(run)), Some(at.into())),
            Some(_) => return Err(invalid_token()),
        };
        // A run is older than its calls. Runs with the same timestamp as the position are read again and skipped.
        let bounds = [begin.as_ref().map(|begin| begin.at), self.created_until];
        let until = bounds.into_iter().flatten().min().map(|at| at.plus(Duration(1)));
        let mut query = PublicQuery { until, ..PublicQuery::default() }.limit(SCAN_ROWS);
        let mut examined = 0;
        loop {
            let page = self.app.node().store().query(&SCHEMA, &query).await?;
            for row in &page.rows {
                let position = RowPosition::of_row(&SCHEMA, row);
                if begin.as_ref().is_some_and(|begin| position > *begin) {
                    continue;
                }
                let at = at.take().filter(|_| begin.as_ref() == Some(&position));
                let at = at.unwrap_or(SettledCallCursor::FIRST);
                if self.is_full() || self.pages_left == 0 || examined == RUNS_MAX {
                    return Ok(Some(CallCursor::SettledOfRuns { run: position.into(), at: at.into() }));
                }
                examined += 1;
                if let Some(at) = self.scan_settled_of_row(&row.key, at).await? {
                    return Ok(Some(CallCursor::SettledOfRuns { run: position.into(), at: at.into() }));
                }
            }
            query.continuation = page.continuation;
            if query.continuation.is_none() {
                return Ok(None);
            }
        }
    }

    /// Collects settled calls of a run of the public table, if it still exists and can be read.
    async fn scan_settled_of_row(
        &mut self,
        key: &PublicKey,
        at: SettledCallCursor,
    ) -> Result<Option<SettledCallCursor>, ApiError> {
        let (Ok(id), Some(number)) =
            (InstanceId::new(key.partition.as_str()), public_instances::read_run_number(key))
        else {
            return Ok(None);
        };
        let node = self.app.node();
        let Some(reader) = node.call_reader(node.shard_of_instance(&id)) else { return Ok(None) };
        let settled = async {
            match reader.find_run(&id, Some(number)).await? {
                Some(run) => self.scan_settled(&reader, &run, at).await,
                None => Ok(None),
            }
        };
        match settled.await {
            Err(RunReadError::Unreadable(_)) => Ok(None),
            other => Ok(other?),
        }
    }

    /// Collects open calls after a position; returns the position to continue after, if there may be more.
    async fn scan_open(
        &mut self,
        reader: &CallReader<'_, S>,
        run: Option<RunId>,
        mut after: Option<OpenCallCursor>,
    ) -> Result<Option<OpenCallCursor>, ApiError> {
        loop {
            let rows = SCAN_ROWS.min(self.records_left);
            let page = reader.open_calls(run, after, rows).await?;
            self.records_left = self.records_left.saturating_sub(page.calls.len().max(1));
            let count = page.calls.len();
            for (examined, (position, call)) in (1..).zip(page.calls) {
                after = Some(position);
                self.push_if_matching(call);
                if self.is_full() && (examined < count || page.has_more) {
                    return Ok(after);
                }
            }
            if !page.has_more {
                return Ok(None);
            }
            if self.records_left == 0 {
                return Ok(after);
            }
            // Reading a page takes a few milliseconds; other tasks run in between.
            tokio::task::yield_now().await;
        }
    }

    /// Collects settled calls of a run from a position on; returns the position to continue at, if there may be more.
    async fn scan_settled(
        &mut self,
        reader: &CallReader<'_, S>,
        run: &RunRef,
        from: SettledCallCursor,
    ) -> Result<Option<SettledCallCursor>, RunReadError> {
        let mut next = Some(from);
        while let Some(from) = next {
            if self.pages_left == 0 {
                return Ok(next);
            }
            let page = reader.settled_calls(run, from, SCAN_ROWS.min(self.pages_left)).await?;
            self.pages_left = self.pages_left.saturating_sub(page.pages_read);
            for (position, call) in page.calls {
                if self.is_full() {
                    return Ok(Some(position));
                }
                self.push_if_matching(Some(call));
            }
            next = page.next;
            tokio::task::yield_now().await;
        }
        Ok(None)
    }

    /// Adds a call to the page; none is a record that cannot be read.
    fn push_if_matching(&mut self, call: Option<CallRecord>) {
        self.found.extend(call.filter(|call| self.matches(call)));
    }

    fn matches(&self, call: &CallRecord) -> bool {
        let CallFilter { state, activity, .. } = self.filter;
        state.is_none_or(|state| item::state_name(call) == state)
            && activity.as_ref().is_none_or(|activity| call.activity == *activity)
            && self.created_until.is_none_or(|until| call.created_at <= until)
    }

    fn is_full(&self) -> bool {
        self.found.len() >= self.limit
    }
}
