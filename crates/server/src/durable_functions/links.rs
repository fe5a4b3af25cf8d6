//! The management URLs of an instance. Clients follow them, and scripts append `&…` to them, so each URL has a query.

use axum::http::HeaderValue;
use axum::http::header::HOST;
use axum::http::uri::Authority;
use serde::Serialize;
use url::form_urlencoded;

use super::query_parameters::QueryParameters;
use crate::api_request::ApiRequest;
use crate::error::ApiError;

const ROOT: &str = "/runtime/webhooks/durabletask";

/// The response body of a start. The client fills in `{eventName}` and `{text}`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ManagementLinks<'a> {
    id: &'a str,
    status_query_get_uri: String,
    send_event_post_uri: String,
    terminate_post_uri: String,
    rewind_post_uri: String,
    purge_history_delete_uri: String,
    restart_post_uri: String,
    suspend_post_uri: String,
    resume_post_uri: String,
}

impl<'a> ManagementLinks<'a> {
    /// The URLs of an instance, on the host of the request. An instance id has no character that must be escaped in a
    /// URL.
    pub(super) fn new(request: &ApiRequest, parameters: &QueryParameters, id: &'a str) -> Self {
        let instance = format!("{}{ROOT}/instances/{id}", origin(request));
        let common = common_query(parameters);
        let control = |name: &str| format!("{instance}/{name}?reason={{text}}&{common}");
        Self {
            id,
            status_query_get_uri: format!("{instance}?{common}"),
            send_event_post_uri: format!("{instance}/raiseEvent/{{eventName}}?{common}"),
            terminate_post_uri: control("terminate"),
            rewind_post_uri: control("rewind"),
            purge_history_delete_uri: format!("{instance}?{common}"),
            restart_post_uri: format!("{instance}/restart?{common}"),
            suspend_post_uri: control("suspend"),
            resume_post_uri: control("resume"),
        }
    }

    /// The URL of the instance's status.
    pub(super) fn location(&self) -> Result<HeaderValue, ApiError> {
        location(&self.status_query_get_uri)
    }
}

/// The URL of this request, to repeat it.
pub(super) fn self_location(request: &ApiRequest) -> Result<HeaderValue, ApiError> {
    let path = request.uri().path_and_query().map_or(ROOT, |path| path.as_str());
    location(&format!("{}{path}", origin(request)))
}

fn location(address: &str) -> Result<HeaderValue, ApiError> {
    HeaderValue::try_from(address).map_err(|error| ApiError::internal(&error))
}

/// The host as in the request, and always `http`; empty, which makes the URLs relative, if it has no valid host.
fn origin(request: &ApiRequest) -> String {
    let host = request.headers().get(HOST).and_then(|host| host.to_str().ok());
    let host = host.filter(|host| !host.contains('@') && host.parse::<Authority>().is_ok());
    host.map(|host| format!("http://{host}")).unwrap_or_default()
}

/// The query parameters of all URLs: `taskHub`, `connection` and `code` as the client sent them, so that a gateway that
/// checks them finds them again. The server itself ignores them.
fn common_query(parameters: &QueryParameters) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.append_pair("taskHub", parameters.text("taskHub").unwrap_or("abide"));
    query.append_pair("connection", parameters.text("connection").unwrap_or("Storage"));
    if let Some(code) = parameters.text("code") {
        query.append_pair("code", code);
    }
    query.finish()
}
