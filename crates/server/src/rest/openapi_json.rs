//! `GET /api/openapi.json`: the interface, described for programs.

use std::sync::OnceLock;

use abide_runtime::hands::Store;
use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use serde_json::Value;

use crate::app::App;
use crate::asked::Asked;
use crate::envelope;
use crate::error::ApiError;
use crate::openapi::{Answer, JSON, Operation, document};

pub(super) const SHOW: Operation = Operation {
    id: "showInterface",
    tag: "Server",
    about: "This document.",
    answers: &[Answer::bare::<Value>(200, "The interface as OpenAPI 3.1.")],
    ..Operation::NONE
};

/// The interface as OpenAPI 3.1, pretty, because people read it too.
pub fn interface<S: Store>() -> String {
    let routes = super::routes::<S>();
    let document = document(routes.iter().map(super::route::Route::described));
    let mut text = serde_json::to_string_pretty(&document).unwrap_or_default();
    text.push('\n');
    text
}

/// Shows the document. It is made once: what stores a server can have makes no difference to it.
pub(super) async fn show<S: Store>(_app: &App<S>, asked: &mut Asked) -> Result<Response, ApiError> {
    static DOCUMENT: OnceLock<Bytes> = OnceLock::new();
    let [] = asked.query([])?;
    let bytes = DOCUMENT.get_or_init(|| interface::<S>().into());
    let kind = HeaderValue::from_static(JSON);
    Ok(envelope::respond(StatusCode::OK, asked.correlation(), kind, Body::from(bytes.clone())))
}
