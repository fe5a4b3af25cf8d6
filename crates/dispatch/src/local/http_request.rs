//! The activity `http.request`: one HTTP call, described by its input.
//!
//! ```text
//!  {method?, url, headers?, body? | text?, timeout?}  ─►  {status, headers, body}
//! ```
//! `body` is any JSON and sent as such; `text` is sent as it is. A field of its own, because `{"text": …}` is itself a body that services
//! ask for. What comes back is parsed if it says that it is JSON, otherwise text, or `{"bytesBase64": …}` if it is not that either.
//!
//! Knows nothing of connections; where a call may go is the guard's to say.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderValue, USER_AGENT};
use hyper::{Method, Request, Uri};
use serde_json::{Map, Value, json};
use tokio::time::{Instant, timeout_at};

use super::activities::{Activities, Invocation, RegisterError};
use crate::contract::input_invalid;
use crate::declaration::{Category, Declaration};
use crate::duration;
use crate::guard::Target;
use crate::http::{Client, Exchanged, HeaderRefused, metadata_headers, outgoing_headers};
use crate::metadata::Metadata;
use crate::transport::Failure;

/// Adds the activity.
pub(super) fn register(activities: &mut Activities, client: Client) -> Result<(), RegisterError> {
    let client = Arc::new(client);
    activities.register(declaration(), move |invocation| {
        let client = Arc::clone(&client);
        async move { call(&client, &invocation).await.map(Arc::new) }
    })
}

fn declaration() -> Declaration {
    let input = json!({
        "type": "object",
        "required": ["url"],
        "additionalProperties": false,
        "properties": {
            "method": {"enum": ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]},
            "url": {"type": "string"},
            "headers": {"type": "object", "maxProperties": 64, "additionalProperties": {"type": "string", "maxLength": 8192}},
            "body": {},
            "text": {"type": "string"},
            "timeout": {"type": "string"},
        },
        "not": {"required": ["body", "text"]},
    });
    let output = json!({
        "type": "object",
        "required": ["status", "headers", "body"],
        "properties": {
            "status": {"type": "integer"},
            "headers": {"type": "object", "additionalProperties": {"type": "string"}},
            "body": {},
        },
    });
    Declaration::new("http.request", Category::ExternalApi).input(input).output(output)
}

async fn call(client: &Client, invocation: &Invocation) -> Result<Value, Failure> {
    let input = &invocation.input;
    let prepared = async {
        let target = client.target(input.get("url").and_then(Value::as_str).unwrap_or_default())?;
        let request = request(input, &target, &invocation.metadata)?;
        let message = format!("{target} took longer than the timeout allows");
        let too_long = Failure::retryable("AttemptTimeout", message);
        // Longer than any delivery may take.
        let until = Instant::now() + limit(input)?.unwrap_or(LIMIT_MAX);
        match timeout_at(until, client.connect(target)).await {
            Ok(connection) => Ok((connection?, request, until, too_long)),
            Err(_) => Err(too_long),
        }
    };
    let (connection, request, until, too_long) = prepared.await.map_err(Failure::with_not_sent)?;
    match timeout_at(until, connection.exchange(request)).await {
        Ok(exchanged) => output(&exchanged?),
        Err(_) => Err(too_long.with_outcome_unknown()),
    }
}

/// The longest limit of an input. It bounds the sum with the present moment.
const LIMIT_MAX: Duration = Duration::from_secs(24 * 3600);

/// The input's own limit. Longer than the delivery's has no effect.
fn limit(input: &Value) -> Result<Option<Duration>, Failure> {
    let Some(text) = input.get("timeout").and_then(Value::as_str) else { return Ok(None) };
    let limit = duration::parse(text).filter(|limit| *limit <= LIMIT_MAX);
    let expected = "\"/timeout\": an ISO-8601 duration up to P1D is expected, such as PT5S";
    limit.map(Some).ok_or_else(|| input_invalid(expected))
}

fn request(input: &Value, target: &Target, metadata: &Metadata) -> Result<Request<Full<Bytes>>, Failure> {
    let mut headers = chosen_headers(input).map_err(|refused| {
        // A slash in a name would look like the next part of the pointer.
        let place = refused.name.replace('~', "~0").replace('/', "~1");
        input_invalid(&format!("\"/headers/{place}\": {refused}"))
    })?;
    metadata_headers(metadata, &mut headers)
        .map_err(|refused| Failure::for_good("MetadataInvalid", refused.to_string()))?;
    headers.entry(USER_AGENT).or_insert(HeaderValue::from_static("abide"));
    let (content_type, body) = body(input)?;
    if let Some(content_type) = content_type {
        headers.entry(CONTENT_TYPE).or_insert(HeaderValue::from_static(content_type));
    }
    let method = input.get("method").and_then(Value::as_str).unwrap_or("GET");
    let method = Method::from_bytes(method.as_bytes());
    let method = method.map_err(|_| input_invalid("\"/method\": not a method"))?;
    let path: Result<Uri, _> = target.path_and_query().parse();
    let path = path.map_err(|_| input_invalid("\"/url\": its path cannot be sent"))?;
    let mut request = Request::new(Full::new(body));
    *request.method_mut() = method;
    *request.uri_mut() = path;
    *request.headers_mut() = headers;
    Ok(request)
}

fn chosen_headers(input: &Value) -> Result<HeaderMap, HeaderRefused> {
    let headers = input.get("headers").and_then(Value::as_object).into_iter().flatten();
    outgoing_headers(headers.filter_map(|(name, value)| Some((name.as_str(), value.as_str()?))))
}

/// The body, and what it is unless a header says otherwise.
fn body(input: &Value) -> Result<(Option<&'static str>, Bytes), Failure> {
    if let Some(text) = input.get("text").and_then(Value::as_str) {
        return Ok((Some("text/plain; charset=utf-8"), Bytes::copy_from_slice(text.as_bytes())));
    }
    match input.get("body") {
        Some(body) => {
            let bytes = serde_json::to_vec(body);
            let bytes = bytes.map_err(|_| input_invalid("\"/body\": cannot be written as JSON"))?;
            Ok((Some("application/json"), bytes.into()))
        }
        None => Ok((None, Bytes::new())),
    }
}

fn output(exchanged: &Exchanged) -> Result<Value, Failure> {
    let mut headers = Map::new();
    for (name, value) in &exchanged.headers {
        let value = String::from_utf8_lossy(value.as_bytes());
        match headers.get_mut(name.as_str()) {
            Some(Value::String(values)) => values.extend([", ", &value]),
            _ => drop(headers.insert(name.as_str().to_owned(), Value::String(value.into_owned()))),
        }
    }
    let body = received_body(exchanged)?;
    Ok(json!({"status": exchanged.status.as_u16(), "headers": headers, "body": body}))
}

fn received_body(exchanged: &Exchanged) -> Result<Value, Failure> {
    let content_type =
        exchanged.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let kind = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let is_json = kind == "application/json" || kind.ends_with("+json");
    let body = exchanged.body.as_deref().unwrap_or_default();
    if is_json && body.is_empty() {
        return Ok(Value::Null);
    }
    if is_json {
        let malformed =
            |error| Failure::for_good("ResponseInvalid", format!("the response says it is JSON: {error}"));
        return serde_json::from_slice(body).map_err(malformed);
    }
    Ok(match std::str::from_utf8(body) {
        Ok(text) => Value::String(text.to_owned()),
        Err(_) => json!({"bytesBase64": STANDARD.encode(body)}),
    })
}

#[cfg(test)]
mod tests;
