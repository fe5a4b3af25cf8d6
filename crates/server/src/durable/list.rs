//! `GET /instances`: instances by status, time and prefix, newest first, a page at a time; where to go on is in a header, both ways.
//!
//! The public table says which instances there are; each is then shown as it is, since it has neither inputs nor outputs, and has
//! a row for every run of an instance where they have one for all.

use abide_runtime::hands::Store;
use abide_runtime::node::ShowError;
use abide_runtime::{RunView, ViewStatus};
use abide_store::public::{Query, QueryError};
use abide_store::tables::public_instances::{self, PublicInstance};
use abide_workflow::{InstanceId, RunNumber, Status, Timestamp, json};
use axum::http::{HeaderName, HeaderValue, StatusCode};

use super::answer::{self, Answered, Otherwise};
use super::parameters::Parameters;
use super::status_json::{StatusJson, status_of};
use crate::app::App;
use crate::asked::Asked;
use crate::error::ApiError;

pub(super) const CONTINUATION: HeaderName = HeaderName::from_static("x-ms-continuation-token");

/// Instances in a page.
const PAGE_MAX: usize = 100;
/// Bytes of inputs and outputs after which a page is full.
const PAGE_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// Rows asked for at once: a page ends where one of these ends, so it also bounds by how much bytes are exceeded.
const BATCH: usize = 8;
/// How often rows are asked for, however few fit.
const BATCHES_MAX: usize = 128;

/// Which instances are meant.
#[derive(Debug)]
pub(super) struct Filter {
    pub(super) statuses: Vec<Status>,
    pub(super) from: Option<Timestamp>,
    pub(super) to: Option<Timestamp>,
    prefix: Option<String>,
}

/// Instances that fit, and where to go on.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) views: Vec<RunView>,
    pub(super) next: Option<String>,
}

/// Shows a page.
pub(super) async fn page<S: Store>(app: &App<S>, asked: &mut Asked) -> Answered {
    let parameters = Parameters::of(asked);
    let filter = Filter::of(&parameters)?;
    let show_input = parameters.flag("showInput", true)?;
    let top = parameters.count("top")?.unwrap_or(PAGE_MAX).min(PAGE_MAX);
    let token = asked.headers().get(CONTINUATION).map(|token| token.to_str().unwrap_or("?").to_owned());
    let mut next = token.filter(|token| !token.is_empty());
    let (mut views, mut bytes) = (Vec::new(), 0);
    for _ in 0..BATCHES_MAX {
        let limit = BATCH.min(top - views.len());
        let found = filter.find(app, next, limit).await?;
        bytes += found.views.iter().map(bytes_of).sum::<u64>();
        views.extend(found.views);
        next = found.next;
        if next.is_none() || views.len() >= top || bytes >= PAGE_BYTES_MAX {
            break;
        }
    }
    let items: Vec<StatusJson<'_>> =
        views.iter().map(|view| StatusJson::of(view, show_input, None)).collect();
    let mut response = answer::json(StatusCode::OK, asked.correlation(), &items);
    if let Some(next) = next {
        let next = HeaderValue::try_from(next).map_err(|error| ApiError::internal(&error))?;
        response.headers_mut().insert(CONTINUATION, next);
    }
    Ok(response)
}

impl Filter {
    pub(super) fn of(parameters: &Parameters) -> Result<Self, Otherwise> {
        Ok(Self {
            statuses: parameters.statuses()?,
            from: parameters.moment("createdTimeFrom")?,
            to: parameters.moment("createdTimeTo")?,
            prefix: parameters.text("instanceIdPrefix").map(str::to_owned),
        })
    }

    /// The same, but for this status only.
    pub(super) fn only(&self, status: Status) -> Self {
        Self { statuses: vec![status], prefix: self.prefix.clone(), ..*self }
    }

    /// The next rows of the public table that may fit, and the instances among them that do.
    pub(super) async fn find<S: Store>(
        &self,
        app: &App<S>,
        continuation: Option<String>,
        limit: usize,
    ) -> Result<Found, Otherwise> {
        let page =
            app.node().store().query(&public_instances::SCHEMA, &self.query(continuation, limit)).await;
        let page = page.map_err(|error| match error {
            QueryError::Continuation => Otherwise::invalid(CONTINUATION.as_str(), error),
            QueryError::Store(error) => ApiError::from(error).into(),
            QueryError::Filter { .. } | QueryError::Limit { .. } => ApiError::internal(&error).into(),
        })?;
        let mut views = Vec::with_capacity(page.rows.len());
        for row in &page.rows {
            let row = PublicInstance::from_row(row).map_err(|error| ApiError::internal(&error))?;
            if self.may_fit(&row) {
                views.extend(current(app, row).await?.filter(|view| self.fits(view)));
            }
        }
        Ok(Found { views, next: page.continuation })
    }

    fn query(&self, continuation: Option<String>, limit: usize) -> Query {
        let query = Query {
            from: self.from.map(|from| from.0),
            // Theirs includes the moment itself.
            until: self.to.map(|to| to.0.saturating_add(1)),
            ..Query::default()
        };
        let query = match self.statuses.as_slice() {
            // What is suspended has two words here.
            [status] if *status != Status::Suspended => query.equal("Status", &status.to_string()),
            _ => query,
        };
        query.limit(limit).after(continuation)
    }

    fn may_fit(&self, row: &PublicInstance) -> bool {
        let name = if row.status == "Parked" { "Suspended" } else { row.status.as_str() };
        let status = self.statuses.is_empty() || self.statuses.iter().any(|s| s.to_string() == name);
        status && self.prefix.as_ref().is_none_or(|prefix| row.instance_id.starts_with(prefix))
    }

    fn fits(&self, view: &RunView) -> bool {
        self.statuses.is_empty() || self.statuses.contains(&status_of(view))
    }
}

/// The instance of a row, if the row is that of its current run.
async fn current<S: Store>(app: &App<S>, row: PublicInstance) -> Result<Option<RunView>, Otherwise> {
    let Ok(id) = InstanceId::new(row.instance_id.as_str()) else { return Ok(None) };
    match app.node().show(&id).await {
        Ok(view) => Ok(view.filter(|view| view.run.0 == row.run_number)),
        // One instance that cannot be read must not hide the others.
        Err(error @ ShowError::Unreadable(_)) => Ok(Some(unreadable(id, row, error.to_string()))),
        Err(error) => Err(error.into()),
    }
}

/// What the public table knows of an instance.
fn unreadable(instance_id: InstanceId, row: PublicInstance, reason: String) -> RunView {
    RunView {
        instance_id,
        run: RunNumber(row.run_number),
        workflow: row.workflow,
        version: row.version,
        status: ViewStatus::Parked(reason),
        input: json::Json::default(),
        output: None,
        error: None,
        correlation_id: row.correlation_id,
        entity_id: row.entity_id,
        created_at: Timestamp(row.created_at),
        updated_at: Timestamp(row.updated_at),
        current_states: Vec::new(),
    }
}

fn bytes_of(view: &RunView) -> u64 {
    json::size(&view.input) + view.output.as_deref().map_or(0, json::size)
}
