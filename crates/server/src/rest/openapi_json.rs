//! `GET /api/openapi.json`: the OpenAPI document of the API.

use std::sync::OnceLock;

use abide_store::Store;
use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use serde_json::Value;

use crate::api_request::ApiRequest;
use crate::app::App;
use crate::error::ApiError;
use crate::openapi::{JSON, OperationSpec, ResponseSpec, document};
use crate::response;

pub(super) const SHOW: OperationSpec = OperationSpec {
    id: "showInterface",
    tag: "Server",
    about: "Returns this document.",
    responses: &[ResponseSpec::plain::<Value>(200, "The API as an OpenAPI 3.1 document.")],
    ..OperationSpec::EMPTY
};

/// The API as an OpenAPI 3.1 document, pretty-printed because people read it too. Needs no running server: a test
/// compares it with docs/reference/openapi.json.
pub fn openapi_document<S: Store>() -> String {
    let routes = super::api_routes::<S>();
    let document = document(routes.iter().map(super::api_route::ApiRoute::documented));
    let mut text = serde_json::to_string_pretty(&document).unwrap_or_default();
    text.push('\n');
    text
}

/// Shows the document. It is built once per process: it does not depend on the store type.
pub(super) async fn show<S: Store>(_app: &App<S>, request: &mut ApiRequest) -> Result<Response, ApiError> {
    static DOCUMENT: OnceLock<Bytes> = OnceLock::new();
    let [] = request.raw_query([])?;
    let bytes = DOCUMENT.get_or_init(|| openapi_document::<S>().into());
    let content_type = HeaderValue::from_static(JSON);
    Ok(response::build_response(
        StatusCode::OK,
        request.correlation(),
        content_type,
        Body::from(bytes.clone()),
    ))
}
