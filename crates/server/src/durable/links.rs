//! The addresses that an instance is managed by. Clients follow them, and scripts append `&…` to them: each has a query.

use axum::http::HeaderValue;
use axum::http::header::HOST;
use axum::http::uri::Authority;
use serde::Serialize;
use url::form_urlencoded;

use super::parameters::Parameters;
use crate::asked::Asked;
use crate::error::ApiError;

const ROOT: &str = "/runtime/webhooks/durabletask";

/// What a start is answered. `{eventName}` and `{text}` are for the client to fill in.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Management<'a> {
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

impl<'a> Management<'a> {
    /// The addresses of an instance, on the host that was asked. An id has no character that an address must escape.
    pub(super) fn of(asked: &Asked, parameters: &Parameters, id: &'a str) -> Self {
        let instance = format!("{}{ROOT}/instances/{id}", origin(asked));
        let common = common(parameters);
        let order = |name: &str| format!("{instance}/{name}?reason={{text}}&{common}");
        Self {
            id,
            status_query_get_uri: format!("{instance}?{common}"),
            send_event_post_uri: format!("{instance}/raiseEvent/{{eventName}}?{common}"),
            terminate_post_uri: order("terminate"),
            rewind_post_uri: order("rewind"),
            purge_history_delete_uri: format!("{instance}?{common}"),
            restart_post_uri: format!("{instance}/restart?{common}"),
            suspend_post_uri: order("suspend"),
            resume_post_uri: order("resume"),
        }
    }

    /// Where to ask how it stands.
    pub(super) fn location(&self) -> Result<HeaderValue, ApiError> {
        location(&self.status_query_get_uri)
    }
}

/// Where to ask the same again.
pub(super) fn again(asked: &Asked) -> Result<HeaderValue, ApiError> {
    let path = asked.uri().path_and_query().map_or(ROOT, |path| path.as_str());
    location(&format!("{}{path}", origin(asked)))
}

fn location(address: &str) -> Result<HeaderValue, ApiError> {
    HeaderValue::try_from(address).map_err(|error| ApiError::internal(&error))
}

/// Scheme and host as the client wrote them; nothing, which leaves addresses without a host, if it wrote none that can be repeated.
fn origin(asked: &Asked) -> String {
    let given = asked.headers().get(HOST).and_then(|host| host.to_str().ok());
    let host = given.filter(|host| !host.contains('@') && host.parse::<Authority>().is_ok());
    host.map(|host| format!("http://{host}")).unwrap_or_default()
}

/// The parameters all their addresses carry: the caller's own, so that whatever checks them on the way finds them again.
fn common(parameters: &Parameters) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.append_pair("taskHub", parameters.text("taskHub").unwrap_or("abide"));
    query.append_pair("connection", parameters.text("connection").unwrap_or("Storage"));
    if let Some(code) = parameters.text("code") {
        query.append_pair("code", code);
    }
    query.finish()
}
