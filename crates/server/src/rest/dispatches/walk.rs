//! A page's way through the calls that a question may mean: those of one run, the open ones of all shards, or the settled ones of all runs.
//!
//! | question | walked, in this order |
//! |---|---|
//! | a run | its open calls by key, then its settled ones as they were settled |
//! | no run, an open state or none | the open calls of each shard |
//! | no run, a settled state | the runs of the public table, newest first, and the settled calls of each |
//!
//! Each page examines a bounded number of records, pages and runs. What cannot be read stops a list of one run, and no other.

use abide_runtime::hands::Store;
use abide_runtime::node::ShowError;
use abide_runtime::run::{CallReader, JournaledCall, NumberedRun, OpenPlace, SettledPlace};
use abide_store::public::{Position, PublicKey, Query};
use abide_store::tables::public_instances::{self, SCHEMA};
use abide_workflow::{Duration, InstanceId, RunNumber, Timestamp};

use super::item;
use super::place::Place;
use crate::app::App;
use crate::error::ApiError;
use crate::rest::page::not_a_token;

/// Records of open calls examined for a page.
const RECORDS_MAX: usize = 1_000;
/// Pages of runs examined for a page of a list.
const PAGES_MAX: usize = 500;
/// Runs examined for a page of a list.
const RUNS_MAX: usize = 100;
/// Rows asked for at once. A row may be large.
const LOOK_ROWS: usize = 50;

/// Which calls are meant. All filters must hold.
#[derive(Debug, Default)]
pub(super) struct Question {
    pub(super) execution: Option<(InstanceId, Option<RunNumber>)>,
    pub(super) state: Option<&'static str>,
    pub(super) activity: Option<String>,
    pub(super) older_than: Option<Duration>,
}

/// One page's walk.
pub(super) struct Walk<'w, S> {
    app: &'w App<S>,
    question: &'w Question,
    limit: usize,
    /// A call must have been promised then or earlier.
    until: Option<i64>,
    records: usize,
    pages: usize,
    found: Vec<JournaledCall>,
}

impl<'w, S: Store> Walk<'w, S> {
    pub(super) fn new(app: &'w App<S>, question: &'w Question, limit: usize) -> Self {
        let until = question.older_than.map(|age| app.now().0.saturating_sub_unsigned(age.0));
        Self { app, question, limit, until, records: RECORDS_MAX, pages: PAGES_MAX, found: Vec::new() }
    }

    /// The calls of the page that begins here, and where the next one does.
    pub(super) async fn page(
        mut self,
        from: Option<Place>,
    ) -> Result<(Vec<JournaledCall>, Option<Place>), ApiError> {
        let next = match &self.question.execution {
            Some((id, run)) => self.one_run(id, *run, from).await?,
            None if self.question.state.is_none_or(item::is_open) => self.shards(from).await?,
            None => self.runs(from).await?,
        };
        Ok((self.found, next))
    }

    async fn one_run(
        &mut self,
        id: &InstanceId,
        asked: Option<RunNumber>,
        from: Option<Place>,
    ) -> Result<Option<Place>, ApiError> {
        let node = self.app.node();
        let Some(reader) = node.calls_of(node.shard_of_instance(id)) else { return Ok(None) };
        // A list goes on in the run that it began with, whatever has replaced it meanwhile.
        let (asked, after, at) = match from {
            None => (asked, None, None),
            Some(Place::OpenOfRun { run, after }) => (Some(RunNumber(run)), Some(after.into()), None),
            Some(Place::SettledOfRun { run, at }) => (Some(RunNumber(run)), None, Some(at.into())),
            Some(_) => return Err(not_a_token()),
        };
        let Some(run) = reader.run(id, asked).await? else { return Ok(None) };
        let number = run.run.0;
        if at.is_none()
            && self.question.state.is_none_or(item::is_open)
            && let Some(after) = self.open(&reader, Some(run.number), after).await?
        {
            return Ok(Some(Place::OpenOfRun { run: number, after: after.into() }));
        }
        if self.question.state.is_some_and(item::is_open) {
            return Ok(None);
        }
        let next = self.settled(&reader, &run, at.unwrap_or(SettledPlace::FIRST)).await?;
        Ok(next.map(|at| Place::SettledOfRun { run: number, at: at.into() }))
    }

    async fn shards(&mut self, from: Option<Place>) -> Result<Option<Place>, ApiError> {
        let (begin, mut after) = match from {
            None => (0, None),
            Some(Place::OpenOfShard { shard, after }) => (shard, after.map(OpenPlace::from)),
            Some(_) => return Err(not_a_token()),
        };
        let node = self.app.node();
        for shard in node.shards().filter(|shard| shard.number() >= begin) {
            let after = after.take().filter(|_| shard.number() == begin);
            if self.is_full() || self.records == 0 {
                return Ok(Some(Place::OpenOfShard { shard: shard.number(), after: None }));
            }
            let Some(reader) = node.calls_of(shard) else { continue };
            if let Some(after) = self.open(&reader, None, after).await? {
                return Ok(Some(Place::OpenOfShard { shard: shard.number(), after: Some(after.into()) }));
            }
        }
        Ok(None)
    }

    async fn runs(&mut self, from: Option<Place>) -> Result<Option<Place>, ApiError> {
        let (begin, mut at) = match from {
            None => (None, None),
            Some(Place::SettledOfRuns { run, at }) => (Some(Position::from(run)), Some(at.into())),
            Some(_) => return Err(not_a_token()),
        };
        // A run is older than its calls. Those of the run's own moment that came before it are asked for again, and passed by.
        let bounds = [begin.as_ref().map(|begin| begin.at), self.until];
        let until = bounds.into_iter().flatten().min().map(|at| at.saturating_add(1));
        let mut query = Query { until, ..Query::default() }.limit(LOOK_ROWS);
        let mut examined = 0;
        loop {
            let looked = self.app.node().store().query(&SCHEMA, &query).await?;
            for row in &looked.rows {
                let position = Position::of(&SCHEMA, row);
                if begin.as_ref().is_some_and(|begin| position > *begin) {
                    continue;
                }
                let at = at.take().filter(|_| begin.as_ref() == Some(&position));
                let at = at.unwrap_or(SettledPlace::FIRST);
                if self.is_full() || self.pages == 0 || examined == RUNS_MAX {
                    return Ok(Some(Place::SettledOfRuns { run: position.into(), at: at.into() }));
                }
                examined += 1;
                if let Some(at) = self.settled_of(&row.key, at).await? {
                    return Ok(Some(Place::SettledOfRuns { run: position.into(), at: at.into() }));
                }
            }
            query.continuation = looked.continuation;
            if query.continuation.is_none() {
                return Ok(None);
            }
        }
    }

    /// Settled calls of a run of the public table, if it is still there and can be read.
    async fn settled_of(
        &mut self,
        key: &PublicKey,
        at: SettledPlace,
    ) -> Result<Option<SettledPlace>, ApiError> {
        let (Ok(id), Some(number)) =
            (InstanceId::new(key.partition.as_str()), public_instances::run_number(key))
        else {
            return Ok(None);
        };
        let node = self.app.node();
        let Some(reader) = node.calls_of(node.shard_of_instance(&id)) else { return Ok(None) };
        let settled = async {
            match reader.run(&id, Some(RunNumber(number))).await? {
                Some(run) => self.settled(&reader, &run, at).await,
                None => Ok(None),
            }
        };
        match settled.await {
            Err(ShowError::Unreadable(_)) => Ok(None),
            other => Ok(other?),
        }
    }

    /// Open calls after a place; the place to go on after, if there may be more.
    async fn open(
        &mut self,
        reader: &CallReader<'_, S>,
        run: Option<u64>,
        mut after: Option<OpenPlace>,
    ) -> Result<Option<OpenPlace>, ApiError> {
        loop {
            let rows = LOOK_ROWS.min(self.records);
            let looked = reader.open(run, after, rows).await?;
            self.records = self.records.saturating_sub(looked.calls.len().max(1));
            let count = looked.calls.len();
            for (examined, (place, call)) in (1..).zip(looked.calls) {
                after = Some(place);
                self.take(call);
                if self.is_full() && (examined < count || looked.more) {
                    return Ok(after);
                }
            }
            if !looked.more {
                return Ok(None);
            }
            if self.records == 0 {
                return Ok(after);
            }
            // A look is a few milliseconds of work; others are heard in between.
            tokio::task::yield_now().await;
        }
    }

    /// Settled calls of a run from a place on; the place to go on with, if there may be more.
    async fn settled(
        &mut self,
        reader: &CallReader<'_, S>,
        run: &NumberedRun,
        from: SettledPlace,
    ) -> Result<Option<SettledPlace>, ShowError> {
        let mut next = Some(from);
        while let Some(from) = next {
            if self.pages == 0 {
                return Ok(next);
            }
            let looked = reader.settled(run, from, LOOK_ROWS.min(self.pages)).await?;
            self.pages = self.pages.saturating_sub(looked.pages);
            for (place, call) in looked.calls {
                if self.is_full() {
                    return Ok(Some(place));
                }
                self.take(Some(call));
            }
            next = looked.next;
            tokio::task::yield_now().await;
        }
        Ok(None)
    }

    fn take(&mut self, call: Option<JournaledCall>) {
        self.found.extend(call.filter(|call| self.is_meant(call)));
    }

    fn is_meant(&self, call: &JournaledCall) -> bool {
        let Question { state, activity, .. } = self.question;
        state.is_none_or(|state| item::state_of(call) == state)
            && activity.as_ref().is_none_or(|activity| call.activity == *activity)
            && self.until.is_none_or(|until| call.created_at <= Timestamp(until))
    }

    fn is_full(&self) -> bool {
        self.found.len() >= self.limit
    }
}
