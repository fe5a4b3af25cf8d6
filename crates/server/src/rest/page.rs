//! Pages of lists: their query parameters, the JSON of a page, and pages and counts of a public table. Knows no
//! particular list.

use abide_store::Store;
use abide_store::public::{PublicQuery, PublicQueryError, PublicRow, TableSchema};
use schemars::JsonSchema;
use serde::Serialize;

use crate::app::App;
use crate::error::ApiError;
use crate::openapi::{Field, FieldKind};

pub(super) const LIMIT: Field = Field::optional(
    "limit",
    FieldKind::Integer { min: 1, max: 100, default: Some(50) },
    "The maximum number of items of a page.",
);

pub(super) const TOKEN: Field = Field::optional(
    "continuationToken",
    FieldKind::Text { chars_min: 1, chars_max: 4_096 },
    "The token of the previous page; valid only with the same filters.",
);

/// One page of a list.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
#[serde(rename_all = "camelCase")]
pub(super) struct PageJson<T> {
    pub(super) items: Vec<T>,
    /// The token of the next page; null at the end.
    pub(super) continuation_token: Option<String>,
}

/// After this many queries a page is returned even if it has fewer rows than requested.
const QUERIES_MAX: usize = 5;

/// Rows of a public table, at most `query.limit`, and the token to continue. The number of queries and the rows
/// examined by each are bounded, so there may be fewer rows, or none, although there are more.
pub(super) async fn query_rows<S: Store>(
    app: &App<S>,
    table: &'static TableSchema,
    mut query: PublicQuery,
) -> Result<(Vec<PublicRow>, Option<String>), PublicQueryError> {
    let wanted = query.limit;
    let mut rows = Vec::new();
    let mut bytes = 0;
    for _ in 0..QUERIES_MAX {
        let page = app.node().store().query(table, &query).await?;
        bytes += page.rows.iter().map(PublicRow::size_bytes).sum::<usize>();
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

/// Rows are counted up to this number, because counting further could mean a scan of all rows.
pub(super) const COUNT_MAX: usize = 10_000;

/// The number of rows of a public table that match, counted up to `limit`.
pub(super) async fn count_rows<S: Store>(
    app: &App<S>,
    table: &'static TableSchema,
    query: PublicQuery,
    limit: usize,
) -> Result<usize, PublicQueryError> {
    let mut query = query.limit(PublicQuery::LIMIT_MAX);
    let mut count = 0;
    while count < limit {
        let page = app.node().store().query(table, &query).await?;
        count += page.rows.len();
        query.continuation = page.continuation;
        if query.continuation.is_none() {
            break;
        }
        // Reading a page takes a few milliseconds; other tasks run in between.
        tokio::task::yield_now().await;
    }
    Ok(count.min(limit))
}

/// Cuts a list in memory, which starts where the page starts, down to one page. The token is the name of the first item
/// of the next page; names need no protection.
pub(super) fn truncate_to_page<T>(
    list: &mut Vec<T>,
    limit: usize,
    name: impl Fn(&T) -> String,
) -> Option<String> {
    let next = list.get(limit).map(name);
    list.truncate(limit);
    next
}

/// The error for a token that this server has not made, or has made for another list.
pub(super) fn invalid_token() -> ApiError {
    ApiError::invalid(TOKEN.name, "invalid continuation token")
}

impl From<PublicQueryError> for ApiError {
    fn from(error: PublicQueryError) -> Self {
        match error {
            PublicQueryError::InvalidContinuation => Self::invalid(TOKEN.name, error.to_string()),
            PublicQueryError::Store(error) => error.into(),
            PublicQueryError::UnknownFilter { .. } | PublicQueryError::InvalidLimit { .. } => {
                Self::internal(&error)
            }
        }
    }
}
