//! Lists in pages: what clients say about them, the shape of the answer, and pages and counts of a public table.

use abide_runtime::hands::Store;
use abide_store::public::{PublicRow, Query, QueryError, TableSchema};
use schemars::JsonSchema;
use serde::Serialize;

use crate::app::App;
use crate::error::ApiError;
use crate::openapi::{Field, Kind};

/// Items of a page.
pub(super) const LIMIT: Field =
    Field::optional("limit", Kind::Whole { min: 1, max: 100, default: Some(50) }, "Items of a page.");

/// Where a page goes on.
pub(super) const TOKEN: Field = Field::optional(
    "continuationToken",
    Kind::Text { chars_min: 1, chars_max: 4_096 },
    "As the page before said; good for the same question only.",
);

/// One page of a list.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
#[serde(rename_all = "camelCase")]
pub(super) struct PageJson<T> {
    pub(super) items: Vec<T>,
    /// Asks for the next page; null at the end.
    pub(super) continuation_token: Option<String>,
}

/// Looks at a table before a page is answered though it has fewer rows than were asked for.
const LOOKS_MAX: usize = 5;

/// Rows of a public table, and how to go on. Each look examines a bounded number of rows, and there is a bounded number of looks.
pub(super) async fn rows<S: Store>(
    app: &App<S>,
    table: &'static TableSchema,
    mut query: Query,
) -> Result<(Vec<PublicRow>, Option<String>), QueryError> {
    let wanted = query.limit;
    let (mut rows, mut bytes) = (Vec::new(), 0);
    for _ in 0..LOOKS_MAX {
        let page = app.node().store().query(table, &query).await?;
        bytes += page.rows.iter().map(PublicRow::bytes).sum::<usize>();
        rows.extend(page.rows);
        query.continuation = page.continuation;
        let full = rows.len() >= wanted || bytes >= PublicRow::PAGE_BYTES_MAX;
        if full || query.continuation.is_none() {
            break;
        }
        query.limit = wanted - rows.len();
    }
    Ok((rows, query.continuation))
}

/// Rows counted; beyond it they are not: that would be a walk through all of them.
pub(super) const COUNTED_MAX: usize = 10_000;

/// Rows of a public table that pass, counted up to so many.
pub(super) async fn count<S: Store>(
    app: &App<S>,
    table: &'static TableSchema,
    query: Query,
    most: usize,
) -> Result<usize, QueryError> {
    let mut query = query.limit(Query::LIMIT_MAX);
    let mut count = 0;
    while count < most {
        let page = app.node().store().query(table, &query).await?;
        count += page.rows.len();
        query.continuation = page.continuation;
        if query.continuation.is_none() {
            break;
        }
        // A page is a few milliseconds of work; others are heard in between.
        tokio::task::yield_now().await;
    }
    Ok(count.min(most))
}

/// A page of a list that is all in memory and begins where the page does. A token is the name of the first item that is not on the page; names
/// are nobody's secret.
pub(super) fn cut<T>(list: &mut Vec<T>, limit: usize, name: impl Fn(&T) -> String) -> Option<String> {
    let next = list.get(limit).map(name);
    list.truncate(limit);
    next
}

/// A token that nobody here made.
pub(super) fn not_a_token() -> ApiError {
    ApiError::invalid(TOKEN.name, "it is not a token of this server")
}

impl From<QueryError> for ApiError {
    fn from(error: QueryError) -> Self {
        match error {
            QueryError::Continuation => Self::invalid(TOKEN.name, error.to_string()),
            QueryError::Store(error) => error.into(),
            QueryError::Filter { .. } | QueryError::Limit { .. } => Self::internal(&error),
        }
    }
}
