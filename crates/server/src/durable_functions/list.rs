//! `GET /instances`: lists instances by status, time and prefix, newest first, in pages. The continuation token is in a
//! header of request and response.
//!
//! The public table provides the candidates. Each instance is then read from its shard's rows in the store, without
//! asking the shard, because the table has neither inputs nor outputs. The table has a row for every run; Durable
//! Functions shows one item per instance, that of its current run. `purge` finds its instances here too.

use abide_runtime::node::RunReadError;
use abide_runtime::{RunView, ViewStatus};
use abide_store::Store;
use abide_store::public::{PublicQuery, PublicQueryError};
use abide_store::tables::public_instances::{self, PublicInstanceRow};
use abide_workflow::{Duration, InstanceId, Status, Timestamp, json};
use axum::http::{HeaderName, HeaderValue, StatusCode};

use super::query_parameters::QueryParameters;
use super::response::{self, DurableError, DurableResult};
use super::status_json::{StatusJson, durable_status};
use crate::api_request::ApiRequest;
use crate::app::App;
use crate::error::ApiError;

pub(super) const CONTINUATION_HEADER: HeaderName = HeaderName::from_static("x-ms-continuation-token");

/// Instances per page.
const PAGE_MAX: usize = 100;
/// A page is full when the inputs and outputs in it reach this size.
const PAGE_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// Rows read at once. A page ends at the end of a batch, so this also bounds by how much the page size is exceeded.
const BATCH_SIZE: usize = 8;
/// Batches read for one page, however few rows match.
const BATCHES_MAX: usize = 128;

#[derive(Debug)]
pub(super) struct DurableInstanceFilter {
    pub(super) statuses: Vec<Status>,
    pub(super) from: Option<Timestamp>,
    pub(super) to: Option<Timestamp>,
    prefix: Option<String>,
}

/// The matching instances of a batch, and the token to continue.
#[derive(Debug)]
pub(super) struct InstanceMatches {
    pub(super) views: Vec<RunView>,
    pub(super) next: Option<String>,
}

pub(super) async fn page<S: Store>(app: &App<S>, request: &mut ApiRequest) -> DurableResult {
    let parameters = QueryParameters::from_request(request);
    let filter = DurableInstanceFilter::from_parameters(&parameters)?;
    let show_input = parameters.flag("showInput", true)?;
    let top = parameters.count("top")?.unwrap_or(PAGE_MAX).min(PAGE_MAX);
    let token =
        request.headers().get(CONTINUATION_HEADER).map(|token| token.to_str().unwrap_or("?").to_owned());
    let mut next = token.filter(|token| !token.is_empty());
    let mut views = Vec::new();
    let mut bytes = 0;
    for _ in 0..BATCHES_MAX {
        let limit = BATCH_SIZE.min(top - views.len());
        let found = filter.find(app, next, limit).await?;
        bytes += found.views.iter().map(payload_bytes).sum::<u64>();
        views.extend(found.views);
        next = found.next;
        if next.is_none() || views.len() >= top || bytes >= PAGE_BYTES_MAX {
            break;
        }
    }
    let items: Vec<StatusJson<'_>> =
        views.iter().map(|view| StatusJson::of(view, show_input, None)).collect();
    let mut response = response::json(StatusCode::OK, request.correlation(), &items);
    if let Some(next) = next {
        let next = HeaderValue::try_from(next).map_err(|error| ApiError::internal(&error))?;
        response.headers_mut().insert(CONTINUATION_HEADER, next);
    }
    Ok(response)
}

impl DurableInstanceFilter {
    pub(super) fn from_parameters(parameters: &QueryParameters) -> Result<Self, DurableError> {
        Ok(Self {
            statuses: parameters.statuses()?,
            from: parameters.timestamp("createdTimeFrom")?,
            to: parameters.timestamp("createdTimeTo")?,
            prefix: parameters.text("instanceIdPrefix").map(str::to_owned),
        })
    }

    /// The same filter for one status only, as a purge uses it.
    pub(super) fn with_status(&self, status: Status) -> Self {
        Self { statuses: vec![status], prefix: self.prefix.clone(), ..*self }
    }

    /// Reads the next rows of the public table, at most `limit`, and returns the instances among them that match. There
    /// may be none although there are more rows.
    pub(super) async fn find<S: Store>(
        &self,
        app: &App<S>,
        continuation: Option<String>,
        limit: usize,
    ) -> Result<InstanceMatches, DurableError> {
        let page =
            app.node().store().query(&public_instances::SCHEMA, &self.query(continuation, limit)).await;
        let page = page.map_err(|error| match error {
            PublicQueryError::InvalidContinuation => {
                DurableError::invalid(CONTINUATION_HEADER.as_str(), error)
            }
            PublicQueryError::Store(error) => ApiError::from(error).into(),
            PublicQueryError::UnknownFilter { .. } | PublicQueryError::InvalidLimit { .. } => {
                ApiError::internal(&error).into()
            }
        })?;
        let mut views = Vec::with_capacity(page.rows.len());
        for row in &page.rows {
            let row = PublicInstanceRow::from_public_row(row).map_err(|error| ApiError::internal(&error))?;
            if self.row_may_match(&row) {
                views.extend(current_view(app, row).await?.filter(|view| self.matches(view)));
            }
        }
        Ok(InstanceMatches { views, next: page.continuation })
    }

    /// The part of the filter that the table can apply. The prefix and several statuses are checked row by row.
    fn query(&self, continuation: Option<String>, limit: usize) -> PublicQuery {
        let query = PublicQuery {
            from: self.from,
            // The upper bound of Durable Functions is inclusive.
            until: self.to.map(|to| to.plus(Duration(1))),
            ..PublicQuery::default()
        };
        let query = match self.statuses.as_slice() {
            // Suspended also covers parked runs.
            [status] if *status != Status::Suspended => query.filter("Status", &status.to_string()),
            _ => query,
        };
        query.limit(limit).continue_from(continuation)
    }

    /// Saves reading an instance that cannot match. The row may be outdated, so [`Self::matches`] checks the status
    /// again.
    fn row_may_match(&self, row: &PublicInstanceRow) -> bool {
        let name = if row.status == "Parked" { "Suspended" } else { row.status.as_str() };
        let status = self.statuses.is_empty() || self.statuses.iter().any(|s| s.to_string() == name);
        status && self.prefix.as_ref().is_none_or(|prefix| row.instance_id.starts_with(prefix))
    }

    fn matches(&self, view: &RunView) -> bool {
        self.statuses.is_empty() || self.statuses.contains(&durable_status(view))
    }
}

/// The instance of a row, if the row is that of its current run.
async fn current_view<S: Store>(
    app: &App<S>,
    row: PublicInstanceRow,
) -> Result<Option<RunView>, DurableError> {
    let Ok(id) = InstanceId::new(row.instance_id.as_str()) else { return Ok(None) };
    match app.node().view_instance(&id).await {
        Ok(view) => Ok(view.filter(|view| view.run_number == row.run_number)),
        // One unreadable instance must not hide the others.
        Err(error @ RunReadError::Unreadable(_)) => Ok(Some(unreadable_view(id, row, error.to_string()))),
        Err(error) => Err(error.into()),
    }
}

/// The view of an unreadable instance, from its row in the public table.
fn unreadable_view(instance_id: InstanceId, row: PublicInstanceRow, reason: String) -> RunView {
    RunView {
        instance_id,
        run_number: row.run_number,
        workflow: row.workflow,
        version: row.version,
        status: ViewStatus::Parked(reason),
        input: json::Json::default(),
        output: None,
        error: None,
        correlation_id: row.correlation_id,
        entity_id: row.entity_id,
        entity_type: None,
        created_at: row.created_at,
        updated_at: row.updated_at,
        current_states: Vec::new(),
        compensation: None,
    }
}

fn payload_bytes(view: &RunView) -> u64 {
    json::size(&view.input) + view.output.as_deref().map_or(0, json::size)
}
