//! The activity `http.request`: one HTTP call, described by its input.
//!
//! ```text
//!  {method?, url, headers?, body? | text?, timeout?}  ─►  {status, headers, body}
//! ```
//! `body` is any JSON and is sent as JSON; `text` is sent as it is. It is a field of its own, because `{"text": …}` is
//! itself a body that some services expect. A response body is parsed if its content type is JSON. Otherwise it is
//! text, or `{"bytesBase64": …}` if it is not UTF-8.
//!
//! Knows nothing about connections; the egress guard decides which targets may be called.

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

use super::activities::{LocalActivities, LocalInvocation, LocalRegisterError};
use crate::contract::input_invalid;
use crate::declaration::{ActivityCategory, ActivityDeclaration};
use crate::duration;
use crate::egress_guard::Target;
use crate::hold::HoldReason;
use crate::http::{HttpResponse, InvalidHeader, OneShotClient, add_metadata_headers, caller_headers};
use crate::metadata::Metadata;
use crate::status::excerpt::AnsweredBody;
use crate::transport::CallFailure;
use crate::wire::{JSON_DEPTH_MAX, WireDecodeError};

/// Registers the activity.
pub(super) fn register(
    activities: &mut LocalActivities,
    client: OneShotClient,
) -> Result<(), LocalRegisterError> {
    let client = Arc::new(client);
    activities.register(declaration(), move |invocation| {
        let client = Arc::clone(&client);
        async move { call(&client, &invocation).await.map(Arc::new) }
    })
}

fn declaration() -> ActivityDeclaration {
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
    ActivityDeclaration::new("http.request", ActivityCategory::ExternalApi).input(input).output(output)
}

async fn call(client: &OneShotClient, invocation: &LocalInvocation) -> Result<Value, CallFailure> {
    let input = &invocation.input;
    let prepared = async {
        let target = client.check_url(input.get("url").and_then(Value::as_str).unwrap_or_default())?;
        let request = build_request(input, &target, &invocation.metadata)?;
        // The default is longer than any attempt may take.
        let limit = input_timeout(input)?.unwrap_or(TIMEOUT_MAX);
        let message = format!("the request to {target} timed out after {} ms", limit.as_millis());
        let timed_out = CallFailure::retryable("AttemptTimeout", message);
        let until = Instant::now() + limit;
        match timeout_at(until, client.connect(target)).await {
            Ok(connection) => Ok((connection?, request, until, timed_out)),
            Err(_) => Err(CallFailure::held(HoldReason::NotConnected, timed_out.code, timed_out.message)),
        }
    };
    let (connection, request, until, timed_out) = prepared.await.map_err(CallFailure::with_not_sent)?;
    match timeout_at(until, connection.exchange(request)).await {
        Ok(response) => response_output(&response?),
        Err(_) => Err(timed_out.with_outcome_unknown()),
    }
}

/// The longest timeout of an input. It keeps the sum with the current time in range.
const TIMEOUT_MAX: Duration = Duration::from_secs(24 * 3600);

/// The timeout in the input. One that is longer than the timeout of the attempt has no effect.
fn input_timeout(input: &Value) -> Result<Option<Duration>, CallFailure> {
    let Some(text) = input.get("timeout").and_then(Value::as_str) else { return Ok(None) };
    let limit = duration::parse(text).filter(|limit| *limit <= TIMEOUT_MAX);
    let expected = "\"/timeout\": expected an ISO-8601 duration up to P1D, such as PT5S";
    limit.map(Some).ok_or_else(|| input_invalid(expected))
}

fn build_request(
    input: &Value,
    target: &Target,
    metadata: &Metadata,
) -> Result<Request<Full<Bytes>>, CallFailure> {
    let mut headers = input_headers(input).map_err(|invalid| {
        // A slash in a name would look like the next part of the pointer.
        let escaped = invalid.name.replace('~', "~0").replace('/', "~1");
        input_invalid(&format!("\"/headers/{escaped}\": {invalid}"))
    })?;
    add_metadata_headers(metadata, &mut headers)
        .map_err(|invalid| CallFailure::permanent("MetadataInvalid", invalid.to_string()))?;
    headers.entry(USER_AGENT).or_insert(HeaderValue::from_static("abide"));
    let (content_type, body) = request_body(input)?;
    if let Some(content_type) = content_type {
        headers.entry(CONTENT_TYPE).or_insert(HeaderValue::from_static(content_type));
    }
    let method = input.get("method").and_then(Value::as_str).unwrap_or("GET");
    let method = Method::from_bytes(method.as_bytes());
    let method = method.map_err(|_| input_invalid("\"/method\": not an HTTP method"))?;
    let path: Result<Uri, _> = target.path_and_query().parse();
    let path = path.map_err(|_| input_invalid("\"/url\": invalid path"))?;
    let mut request = Request::new(Full::new(body));
    *request.method_mut() = method;
    *request.uri_mut() = path;
    *request.headers_mut() = headers;
    Ok(request)
}

fn input_headers(input: &Value) -> Result<HeaderMap, InvalidHeader> {
    let headers = input.get("headers").and_then(Value::as_object).into_iter().flatten();
    caller_headers(headers.filter_map(|(name, value)| Some((name.as_str(), value.as_str()?))))
}

/// The body, and its content type unless a header overrides it.
fn request_body(input: &Value) -> Result<(Option<&'static str>, Bytes), CallFailure> {
    if let Some(text) = input.get("text").and_then(Value::as_str) {
        return Ok((Some("text/plain; charset=utf-8"), Bytes::copy_from_slice(text.as_bytes())));
    }
    match input.get("body") {
        Some(body) => {
            let bytes = serde_json::to_vec(body);
            let bytes = bytes.map_err(|_| input_invalid("\"/body\": cannot be encoded as JSON"))?;
            Ok((Some("application/json"), bytes.into()))
        }
        None => Ok((None, Bytes::new())),
    }
}

fn response_output(response: &HttpResponse) -> Result<Value, CallFailure> {
    let mut headers = Map::new();
    for (name, value) in &response.headers {
        let value = String::from_utf8_lossy(value.as_bytes());
        match headers.get_mut(name.as_str()) {
            Some(Value::String(values)) => values.extend([", ", &value]),
            _ => drop(headers.insert(name.as_str().to_owned(), Value::String(value.into_owned()))),
        }
    }
    let body = response_body(response)?;
    Ok(json!({"status": response.status.as_u16(), "headers": headers, "body": body}))
}

fn response_body(response: &HttpResponse) -> Result<Value, CallFailure> {
    let content_type = response.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let body = response.body.as_deref().unwrap_or_default();
    let answered = AnsweredBody { bytes: body, content_type };
    let is_json = answered.is_json();
    if is_json && body.is_empty() {
        return Ok(Value::Null);
    }
    if is_json {
        let malformed = |error| {
            let error = WireDecodeError::from(error);
            let is_foreign = matches!(error, WireDecodeError::NotJson { .. });
            let excerpt = if is_foreign { answered.describe() } else { String::new() };
            let message = format!("the response cannot be decoded: {error}{excerpt}");
            CallFailure::permanent("ResponseInvalid", message)
        };
        return abide_json::parse_bytes(body, JSON_DEPTH_MAX).map_err(malformed);
    }
    Ok(match std::str::from_utf8(body) {
        Ok(text) => Value::String(text.to_owned()),
        Err(_) => json!({"bytesBase64": STANDARD.encode(body)}),
    })
}

#[cfg(test)]
mod tests;
