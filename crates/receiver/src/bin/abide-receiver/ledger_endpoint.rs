//! `GET /effects`: every entry of the ledger, one JSON object per line, read page by page while it is sent.

use abide_receiver::HandlerRows;
use abide_store::rows::{PrivateRows, StoreError};
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::get;
use futures_util::stream;

use crate::activities::LEDGER_PREFIX;

pub(crate) fn router<S: PrivateRows + 'static>(rows_reader: HandlerRows<S>) -> Router {
    Router::new().route("/effects", get(list_entries)).with_state(rows_reader)
}

async fn list_entries<S: PrivateRows + 'static>(
    State(rows_reader): State<HandlerRows<S>>,
) -> impl IntoResponse {
    let pages = stream::try_unfold(Some(LEDGER_PREFIX.to_vec()), move |after| {
        let rows_reader = rows_reader.clone();
        async move {
            let Some(after) = after else { return Ok::<_, StoreError>(None) };
            let rows = rows_reader.page(LEDGER_PREFIX, Some(&after)).await?;
            let last = rows.last().map(|row| row.key.as_bytes().to_vec());
            let mut lines = Vec::new();
            for row in rows {
                lines.extend_from_slice(&row.value);
                lines.push(b'\n');
            }
            Ok(Some((Bytes::from(lines), last)))
        }
    });
    ([(CONTENT_TYPE, "application/x-ndjson")], Body::from_stream(pages))
}
