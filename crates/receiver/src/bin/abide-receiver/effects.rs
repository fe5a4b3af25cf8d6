//! `GET /effects`: every entry of the ledger, one JSON object a line, read page by page while it is sent.

use abide_receiver::Effects;
use abide_store::rows::{PrivateRows, StoreError};
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::get;
use futures_util::stream;

use crate::activities::LEDGER;

pub(crate) fn router<S: PrivateRows + 'static>(effects: Effects<S>) -> Router {
    Router::new().route("/effects", get(all)).with_state(effects)
}

async fn all<S: PrivateRows + 'static>(State(effects): State<Effects<S>>) -> impl IntoResponse {
    let pages = stream::try_unfold(Some(LEDGER.to_vec()), move |after| {
        let effects = effects.clone();
        async move {
            let Some(after) = after else { return Ok::<_, StoreError>(None) };
            let rows = effects.page(LEDGER, Some(&after)).await?;
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
